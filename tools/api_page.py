"""Write docs/api.md: every public name of deepmf and of its packages, described by its docstring.

Run by `make format`; a test checks that the page agrees.
"""

import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from deepmf.models.base import Model
from deepmf.training.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "api.md"

INTRODUCTION = """# Python reference

Generated from the docstrings of the public names. Import a name from the module that its section names; everything else
is internal and may move.
"""

# module: what its section says first. The sections of `deepmf` itself come before these.
FACES = {
    "deepmf.matrix": "Matrices, scales, labels and features.",
    "deepmf.data": "Reading, packing and splitting.",
    "deepmf.datasets": "Public data sets and generated matrices.",
    "deepmf.models": "What every model can do, and what its methods return.",
    "deepmf.training": "Settings, history and callbacks.",
    "deepmf.evaluation": "Errors by area, calibration, ranking and comparison.",
    "deepmf.metrics": "Errors (0 is perfect) and scores (1 is perfect) of predictions.",
    "deepmf.sklearn": "The [imputer](sklearn.md) and its scores.",
    "deepmf.plots": "Plots: each function takes and returns a matplotlib `Axes`.",
    "deepmf.report": "[Reports](report.md) as one HTML page.",
    "deepmf.tuning": "[Searching settings](tuning.md).",
    "deepmf.export": "[Export](export.md) to ONNX.",
    "deepmf.serve": "The [service](serving.md).",
    "deepmf.errors": "Every error and warning.",
}


def is_model(found: object) -> bool:
    """Whether a public object is a model."""
    return inspect.isclass(found) and issubclass(found, Model)


def is_settings(found: object) -> bool:
    """Whether a public object is the settings of a model."""
    return inspect.isclass(found) and issubclass(found, Settings)


def list_names(module: str) -> list[str]:
    """List the public names of a module: those of `__all__`, otherwise what it defines."""
    found = import_module(module)
    defined = [name for name, value in vars(found).items() if getattr(value, "__module__", None) == module]
    return list(getattr(found, "__all__", [name for name in defined if not name.startswith("_")]))


def directive(module: str, name: str) -> str:
    """Return the directive that documents a public name."""
    found = getattr(import_module(module), name)
    if inspect.isclass(found):
        listed = "" if is_settings(found) and found is not Settings else "   :members:\n"
        return f".. autoclass:: {name}\n{listed}"
    return f".. auto{'function' if callable(found) else 'data'}:: {name}\n"


def section(title: str, said: str, module: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a section."""
    yield f"\n## {title}\n\n{said}\n\n```{{eval-rst}}\n.. currentmodule:: {module}\n"
    yield "\n".join(directive(module, name) for name in names)
    yield "```\n"


def page() -> str:
    """Return the whole page."""
    deepmf = import_module("deepmf")
    own = {name: getattr(deepmf, name) for name in deepmf.__all__}
    models = [name for name, found in own.items() if is_model(found)]
    settings = [name for name, found in own.items() if is_settings(found)]
    others = [name for name in own if name not in models and name not in settings]
    parts = [INTRODUCTION]
    parts += section("deepmf", "The names that most programs need.", "deepmf", others)
    parts += section("Models", "Settings are keyword arguments; `model.settings` holds them.", "deepmf", models)
    parts += section("Settings", "`deepmf settings MODEL` shows the same on the command line.", "deepmf", settings)
    for module, said in FACES.items():
        names = [name for name in list_names(module) if name not in own]
        if names:
            parts += section(module, said, module, names)
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
