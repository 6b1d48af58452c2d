"""Models in towers of public and sensitive features, and their gradients by example."""
