"""Models and checkpoints as files and folders: written whole or not at all, checked when read."""
