"""Ridge regressions and decompositions that several models share."""
