"""OrdinalDMF: masked training, an ordinal head, refined latents."""
