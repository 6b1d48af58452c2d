"""Hierarchies of slices: noise by level, and trees made consistent."""
