"""Penstock."""
