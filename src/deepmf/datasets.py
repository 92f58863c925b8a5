"""Matrices to try things on: public data sets by name, and generated matrices whose truth is known."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.data.datasets import Dataset, fetch, fetch_file, find, folder, info, load, load_split, names
    from deepmf.data.ground_truth import Truth, draw_truth
    from deepmf.data.synthetic import Generated, checkerboard, generate, stream

__all__ = [
    "Dataset",
    "Generated",
    "Truth",
    "checkerboard",
    "draw_truth",
    "fetch",
    "fetch_file",
    "find",
    "folder",
    "generate",
    "info",
    "load",
    "load_split",
    "names",
    "stream",
]

__getattr__, __dir__ = export_names(
    __name__,
    {
        "deepmf.data.datasets": [
            "Dataset",
            "fetch",
            "fetch_file",
            "find",
            "folder",
            "info",
            "load",
            "load_split",
            "names",
        ],
        "deepmf.data.ground_truth": ["Truth", "draw_truth"],
        "deepmf.data.synthetic": ["Generated", "checkerboard", "generate", "stream"],
    },
)
