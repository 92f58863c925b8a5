"""Training: the one loop, and what it steps with."""
