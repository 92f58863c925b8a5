"""DMF and DMF-D: the paper's models."""
