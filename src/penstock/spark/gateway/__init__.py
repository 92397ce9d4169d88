"""Drivers of any language: a listener that opens a gateway in them, and the way in for a process beside them."""
