"""Cards, plots and pages about what was released; reads finished runs only."""
