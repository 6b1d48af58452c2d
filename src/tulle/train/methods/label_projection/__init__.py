"""Training on public features whose label noise is projected."""
