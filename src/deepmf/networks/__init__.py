"""Torch modules: tensors in, tensors out."""
