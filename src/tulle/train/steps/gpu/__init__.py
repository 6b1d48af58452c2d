"""Private steps recorded once and replayed on a GPU."""
