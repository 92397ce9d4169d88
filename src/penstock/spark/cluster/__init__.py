"""Real servers on this machine: a standalone Spark cluster, a Kafka broker, and the Java they need."""
