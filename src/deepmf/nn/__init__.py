"""Torch modules shared by several models: tensors in, tensors out."""
