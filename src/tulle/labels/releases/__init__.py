"""The release of a table's labels: checked, paid, drawn once and written."""
