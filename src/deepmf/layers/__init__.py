"""Torch modules that several model families share: tensors in, tensors out."""
