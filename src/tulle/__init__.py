"""Advertising under differential privacy, on one privacy core."""

__version__ = "0.1.0"
