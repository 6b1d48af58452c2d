"""Randomized response on bins of numeric labels."""
