"""A declared dataflow as one Structured Streaming query."""
