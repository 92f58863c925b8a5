"""Packages that import a public name when it is first used, so that `import deepmf` loads nothing
heavy."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def export_names(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    The public names are those of `read_exports`.

    Parameters
    ----------
    package, file : the package's `__name__` and `__file__`.
    """
    modules = read_exports(file)

    def get_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    def list_names() -> list[str]:
        return sorted(
            [*modules, *(name for name in vars(sys.modules[package]) if name.startswith("__"))]
        )

    return get_name, list_names, sorted(modules)


def read_exports(file: str) -> dict[str, str]:
    """Return the module of each name that a file imports for type checkers alone.

    These are the lines `from module import name as name`; `from module import *` takes over those
    of another file.
    """
    with open(file, encoding="utf-8") as source:  # noqa: PTH123, as pathlib is slow to import
        imports = re.findall(r"^    from (\S+) import (\([^)]*\)|.*)", source.read(), re.MULTILINE)
    exports = {
        name: module for module, names in imports for name in re.findall(r"(\w+) as \1", names)
    }
    for module in (module for module, names in imports if names.startswith("*")):
        exports |= read_exports(
            __file__.replace("lazy.py", module.removeprefix("deepmf.").replace(".", "/") + ".py")
        )
    return exports
