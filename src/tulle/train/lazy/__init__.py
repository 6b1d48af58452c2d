"""Noise of table rows drawn when a row is next read, with the law of noise in every step."""
