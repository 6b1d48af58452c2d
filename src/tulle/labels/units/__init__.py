"""Noisy labels that protect all rows of a unit together."""
