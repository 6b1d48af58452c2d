"""Counts by trust model: central, shuffled, local."""
