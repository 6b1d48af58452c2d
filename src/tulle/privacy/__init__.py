"""The words of a guarantee: units, adjacency, events, plans and releases."""
