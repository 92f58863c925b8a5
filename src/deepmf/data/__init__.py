"""Getting a matrix: reading, downloading, generating, splitting."""
