"""Queries of a measurement: their plan, their error, and their release."""
