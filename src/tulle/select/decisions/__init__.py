"""Decisions on a file of auctions: who is personalised, the draw, and what leaves."""
