"""Layouts of log files, and readers that stream them."""
