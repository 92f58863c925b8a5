"""Charts: numbers in, SVG out, for pages and for files of their own."""
