"""Optimizers that take sums with noise."""
