"""The W3C's Attribution API: a browser, its budgets, and campaigns."""
