"""Reach and frequency, of one party and of several."""
