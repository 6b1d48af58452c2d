"""Published experiments run again, and their claims judged by what came out."""
