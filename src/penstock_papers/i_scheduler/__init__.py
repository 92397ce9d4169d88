"""Traffic-cutting placement (I-Scheduler): its applications, its rivals and its trials."""
