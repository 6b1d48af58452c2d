"""Summary reports of a browser, and the noise of their aggregation."""
