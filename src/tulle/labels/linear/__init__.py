"""A linear model from noisy sums of labels."""
