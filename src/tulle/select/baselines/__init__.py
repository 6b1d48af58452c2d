"""Rules of selection that floors are compared with."""
