"""Public data sets by name: found here or downloaded, then read as a matrix or as a published split."""

from deepmf.data.datasets.local import fetch, fetch_file, find, folder, info, load, load_split, names

__all__ = ["fetch", "fetch_file", "find", "folder", "info", "load", "load_split", "names"]
