"""Training: the one loop with the one optimiser."""
