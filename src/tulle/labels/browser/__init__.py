"""Labels from the event-level reports of a browser."""
