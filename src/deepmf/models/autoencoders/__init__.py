"""Autoencoders: AutoRec, Deep AutoRec and CF-NADE."""
