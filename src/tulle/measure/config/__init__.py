"""Settings of a measurement, read from a file."""
