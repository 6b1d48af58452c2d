"""Logs on their way to training: schemas, bounds, samplers, splits."""
