"""Mechanisms that choose ads, each with its law, its cost and its draw in whole words."""
