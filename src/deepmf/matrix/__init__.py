"""The observed matrix: its scale, its labels, its entries."""
