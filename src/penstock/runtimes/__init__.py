"""Where dataflows run: live on Spark, or simulated. Both observe snapshots and apply plans."""
