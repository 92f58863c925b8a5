"""Published results as data, and the code that runs them again."""
