"""Models: fit, predict, extend, save."""
