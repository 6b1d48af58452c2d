"""Mechanisms as public floors: no candidate ever falls below its own."""
