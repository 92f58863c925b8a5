"""Torch modules that several models share: tensors in, tensors out."""
