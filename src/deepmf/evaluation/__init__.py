"""How well a model predicts: errors by area."""
