"""Decisions as pure functions: facts in, proposals out, no clock, no I/O, no Spark."""
