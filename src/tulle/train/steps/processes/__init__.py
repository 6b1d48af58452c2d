"""Training by several processes that make one release."""
