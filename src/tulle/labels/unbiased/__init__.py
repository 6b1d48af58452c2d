"""The unbiased randomizer of least variance for numeric labels, by linear programming."""
