"""The library of frames, polars: imported where frames are made, or files read as such, and no earlier."""

from __future__ import annotations

from types import ModuleType

from deepmf.errors import MissingDependency


def import_polars() -> ModuleType:
    """Return polars; where it is missing, name what to install."""
    try:
        import polars
    except ImportError as error:
        raise MissingDependency("frames and files of entries need polars: pip install polars") from error
    return polars
