"""Randomizers, one a file, that draw exactly from the operating system's entropy."""
