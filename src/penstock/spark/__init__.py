"""Live on Spark: Spark moves every record, Penstock measures and steers."""
