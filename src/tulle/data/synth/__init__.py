"""Synthetic logs in the shapes of public ones."""
