"""Public settings of training: what a plan needs, without PyTorch."""
