"""Priorities and shedding (quality of data): its applications and its trials."""
