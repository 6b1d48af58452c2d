"""Layouts of public logs, and what is known of their columns."""
