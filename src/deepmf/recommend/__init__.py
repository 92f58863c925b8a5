"""Which columns, in which order: presence models, relevance, rankings."""
