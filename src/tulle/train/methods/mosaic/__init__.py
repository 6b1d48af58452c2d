"""Mosaic: an additive model of tables of cells, fitted by noisy sums without steps or batches."""
