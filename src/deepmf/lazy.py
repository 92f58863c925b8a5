"""Packages that import a public name when it is first used, so that `import deepmf` loads nothing heavy."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def export_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Parameters
    ----------
    package
        The package's `__name__`.
    homes
        Its public names, by the module that defines them.
    """
    modules = {name: module for module, names in homes.items() for name in names}

    def get_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    def list_names() -> list[str]:
        return sorted([*modules, *(name for name in vars(sys.modules[package]) if name.startswith("__"))])

    return get_name, list_names
