"""Measurement of campaigns with noise: slices, hierarchies, reach, browser reports."""
