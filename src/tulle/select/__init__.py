"""Private, personalised ad selection with exact billing."""
