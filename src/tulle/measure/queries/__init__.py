"""From a measurement's settings to a plan, its error, and its release."""
