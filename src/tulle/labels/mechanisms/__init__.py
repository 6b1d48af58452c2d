"""Mechanisms for labels, one a file: settings, noise, and what is known of both."""
