"""Tuning: the search for the settings of a model that predict validation entries best."""
