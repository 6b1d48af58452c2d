"""Training noise as whole multiples of one grid."""
