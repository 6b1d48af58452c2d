"""Private choice of the table rows that a step may change."""
