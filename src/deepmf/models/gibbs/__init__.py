"""The Gibbs sampler of a matrix factorisation whose priors know which entries exist."""
