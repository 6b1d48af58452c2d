"""What events cost: guarantees, calibrated noise, ledgers and budgets."""
