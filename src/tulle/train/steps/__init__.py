"""Private steps: what a step does to a batch, and where it runs."""
