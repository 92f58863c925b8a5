"""Published results as data, and what it takes to run them again."""
