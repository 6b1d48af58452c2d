"""Inner loops of a private step in C."""
