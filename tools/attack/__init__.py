"""Attacks on a service and its files: `make attack` runs them."""
