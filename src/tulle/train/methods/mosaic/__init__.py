"""Training on noisy sums of cells: an additive model of tables, without steps or batches."""
