"""What each rule of selection is worth before it is used, from public data and a model."""
