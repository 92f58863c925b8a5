"""Export: a trained model as files that run without deepmf."""
