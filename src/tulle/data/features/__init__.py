"""From values of columns to feature ids."""
