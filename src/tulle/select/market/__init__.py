"""Markets to try selection in, and the experiments of Laro et al. 2024 on any of them."""
