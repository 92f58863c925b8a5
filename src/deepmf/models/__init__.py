"""What users hold: fit, predict, extend, save."""
