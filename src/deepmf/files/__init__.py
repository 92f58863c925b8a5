"""Files: written whole or not at all, temporary ones that no killed process leaves for ever, and locks."""
