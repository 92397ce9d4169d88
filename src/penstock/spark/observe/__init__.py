"""From what Spark and Python tasks report to a `Snapshot`."""
