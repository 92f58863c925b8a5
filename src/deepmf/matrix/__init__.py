"""Matrices with missing entries: their entries, labels, scale, and the features of rows and columns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepmf.matrix.description import Description
    from deepmf.matrix.features import Features
    from deepmf.matrix.frames import TableForm
    from deepmf.matrix.labels import Labels
    from deepmf.matrix.matrix import AREAS, Entries, ObservedMatrix
    from deepmf.matrix.packed import verify_store
    from deepmf.matrix.scale import Scale

__all__ = [
    "AREAS",
    "Description",
    "Entries",
    "Features",
    "Labels",
    "ObservedMatrix",
    "Scale",
    "TableForm",
    "verify_store",
]

# Names are imported when they are first used.
_HOMES = {
    "AREAS": "matrix",
    "Description": "description",
    "Entries": "matrix",
    "Features": "features",
    "Labels": "labels",
    "ObservedMatrix": "matrix",
    "Scale": "scale",
    "TableForm": "frames",
    "verify_store": "packed",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'deepmf.matrix' has no attribute {name!r}")
    return getattr(import_module(f"deepmf.matrix.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
