"""Pages about a release: what they say, and how it is written as HTML and as Markdown."""
