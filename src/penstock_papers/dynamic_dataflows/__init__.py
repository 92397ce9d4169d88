"""Alternates and cost (dynamic dataflows): its application, its deciders and its trials."""
