"""Encoding of column values as feature ids."""
