"""Smooth factors along positions: a member for sensors, days, and places along a genome."""
