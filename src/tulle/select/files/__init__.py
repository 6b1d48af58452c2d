"""Files of selection: auctions and choices, streamed and checked, and auctions from a log."""
