"""Noise that is correlated between steps."""
