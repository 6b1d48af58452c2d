"""The profile audit of private training steps, engine by engine."""
