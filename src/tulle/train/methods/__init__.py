"""All training methods, a file or folder each, and what they share."""
