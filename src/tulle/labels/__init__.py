"""Labels with noise: label differential privacy, by row and by unit."""
