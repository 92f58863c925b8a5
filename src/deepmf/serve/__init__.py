"""The service: a model behind HTTP that learns entries while it runs."""
