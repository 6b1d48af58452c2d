"""Conversions attributed to impressions, with bounded contributions."""
