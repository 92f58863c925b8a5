"""What a shell offers after Tab: names of models, settings, data sets and tables, found without loading anything heavy.

Settings and data sets are looked up in the source, since importing it would take the shell seconds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import typer

from deepmf.models.registry import HOMES


def model_names() -> list[str]:
    """Return the names that `--model` takes."""
    return list(HOMES)


def dataset_names() -> list[str]:
    """Return the names that the catalogue of data sets has."""
    return re.findall(r'^ +name="(.+?)",$', _source("deepmf.data.datasets.local.catalogue"), re.MULTILINE)


def table_names() -> list[str]:
    """Return the names of the tables that can be reproduced."""
    spec = find_spec("deepmf.experiments")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    recipes = Path(spec.submodule_search_locations[0], "recipes")
    return sorted(folder.name for folder in recipes.iterdir() if folder.is_dir())


def assignments(context: typer.Context) -> list[str]:
    """Return the settings of the model that `--model` names, as `--set` takes them."""
    return [f"{name}=" for name in setting_names(context.params.get("model") or "dmf")]


def setting_names(model: str) -> list[str]:
    """Return the names of a model's settings; none of a model that does not exist.

    >>> setting_names("means")
    ['seed', 'shrinkage']
    """
    return list(dict.fromkeys(_fields(*_settings_class(*HOMES[model])))) if model in HOMES else []


def _settings_class(module: str, model: str) -> tuple[str, str]:
    """Return where the class of a model's settings is defined: its own, or that of the class it derives from."""
    found = _class(module, model)
    for line in found.body:
        if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == "settings_class" and line.value is not None:
            return _home(module, ast.unparse(line.value))
    return _settings_class(*_home(module, ast.unparse(found.bases[0])))


def _fields(module: str, settings: str) -> Iterator[str]:
    """Yield the fields of a dataclass, those of its bases first."""
    found = _class(module, settings)
    for base in found.bases:
        yield from _fields(*_home(module, ast.unparse(base)))
    yield from (ast.unparse(line.target) for line in found.body if isinstance(line, ast.AnnAssign))


def _class(module: str, name: str) -> ast.ClassDef:
    lines = ast.parse(_source(module)).body
    return next(line for line in lines if isinstance(line, ast.ClassDef) and line.name == name)


def _home(module: str, name: str) -> tuple[str, str]:
    """Return the module that defines a name, and the name: another module where this one imports it."""
    for line in ast.parse(_source(module)).body:
        if isinstance(line, ast.ImportFrom) and any(alias.name == name for alias in line.names):
            return str(line.module), name
    return module, name


def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")
