"""Interference-aware migration (Neptune): its applications, its method and its trials."""
