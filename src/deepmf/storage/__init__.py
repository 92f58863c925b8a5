"""Models and checkpoints as files: written whole or not at all, checked when read or mapped into
memory."""
