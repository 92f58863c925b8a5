"""Shell completion: names of models, settings, data sets and tables, without importing anything heavy."""

from __future__ import annotations

from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import typer

from deepmf.models.registry import HOMES, settings_class


def model_names() -> list[str]:
    """Return the names that `--model` takes."""
    return list(HOMES)


def dataset_names() -> list[str]:
    """Return the names that the catalogue of data sets has."""
    from deepmf.data.datasets.catalogue import DATASETS

    return list(DATASETS)


def table_names() -> list[str]:
    """Return the names of the tables that can be reproduced."""
    spec = find_spec("deepmf.experiments")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    recipes = Path(spec.submodule_search_locations[0], "recipes")
    return sorted(folder.name for folder in recipes.iterdir() if folder.is_dir())


def assignments(context: typer.Context) -> list[str]:
    """Return the settings of the model that `--model` names, or of the command's own, as `--set` takes them."""
    own = next(option.default for option in context.command.params if option.name == "model")
    return [f"{name}=" for name in setting_names(context.params.get("model") or str(own))]


def setting_names(model: str) -> list[str]:
    """Return the names of a model's settings; none of a model that does not exist.

    >>> setting_names("means")
    ['seed', 'shrinkage', 'feature_penalty']
    """
    return [field.name for field in fields(settings_class(model))] if model in HOMES else []
