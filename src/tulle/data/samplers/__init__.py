"""Batches, each sampler with the event that accounts for it."""
