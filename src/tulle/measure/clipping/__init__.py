"""Clips and budget shares chosen from a past period."""
