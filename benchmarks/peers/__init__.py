"""Side by side with other libraries: the same splits, the same metrics, each library in an
environment of its own."""
