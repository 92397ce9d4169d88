"""Latency-constrained elasticity (Nephele): its applications, its method and its trials."""
