"""Models and checkpoints as files: written whole or not at all, read back checked."""
