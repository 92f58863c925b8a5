"""What a fitted model is: latents, an encoder and a readout; scores of pairs, distributions,
times."""
