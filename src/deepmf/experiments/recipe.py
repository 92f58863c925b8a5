"""Recipes: one published result each, read from a TOML file with its data, splits, settings and
figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deepmf.data.datasets import load, load_sequences, load_split
from deepmf.data.splits import Split, split_areas, split_entries, split_last
from deepmf.data.synthetic import generate
from deepmf.errors import BadSetting, suggest_name
from deepmf.evaluation.comparison import Problem
from deepmf.files import read_toml
from deepmf.matrix.extras import Extras
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.registry import model_class

FOLDER = Path(__file__).parent / "recipes"

RANKING_METRICS = ("recall", "ndcg")  # of lists of 20 columns, in tables of interactions
NEXT_METRICS = ("next_ndcg", "next_hit_rate")  # of lists of 10 columns, in tables of last entries
NAMES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "level_rmse": "RMSE of levels",
    "level_mae": "MAE of levels",
    "calibration_error": "calibration error",
    "coverage": "share inside the 90 % interval",
    "recall": "recall@20",
    "ndcg": "NDCG@20",
    "next_ndcg": "NDCG@10",
    "next_hit_rate": "hit rate@10",
}

METRICS = (*NAMES, "median_rmse", "median_mae")  # medians have the column of levels

# Name of a small generated matrix, for quick runs without a data set.
GENERATED = "generated"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One row of a table: everything needed to run it, and the published figures.

    Attributes
    ----------
    name : the table and the file, such as "table1/dmf".
    title, model, data : title of the row, name of the model, and name of the data set.
    protocol : how the data are split (`PROTOCOLS`).
    new_shares : shares of new rows and columns that protocols with areas run; 0 where nothing is
        new.
    seeds : seeds of the splits, and of the models fitted on them.
    settings, quick : settings of the model, and the settings that replace them in a quick run.
    search : for each searched setting, the candidates from which validation entries chose the value
        in `settings`.
    joined : whether validation entries join the inputs at test time, as in the authors' code.
    refit : whether the method is fitted again on training and validation entries for the best
        number of epochs.
    published, source : published figures by area and metric, and where they were published.
    assumptions : assumptions where the source leaves something open.
    """

    name: str
    title: str
    model: str
    data: str = "ml-1m"
    protocol: str
    new_shares: tuple[float, ...] = (0.2,)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    settings: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    joined: bool = False
    refit: bool = False
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    source: str = ""
    assumptions: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """The table whose own row this is."""
        return self.name.partition("/")[0]

    @property
    def row(self) -> str:
        """The name within its table."""
        return self.name.partition("/")[2]

    @property
    def has_areas(self) -> bool:
        """Whether the protocol has new rows and columns."""
        return self.protocol.startswith("areas")


def make_quick(recipe: Recipe) -> Recipe:
    """Return a recipe that takes seconds: generated data, two splits and the quick settings. Never
    a result."""
    settings = dict(recipe.settings) | dict(recipe.quick)
    return replace(
        recipe,
        data=GENERATED,
        settings=settings,
        seeds=recipe.seeds[:2],
        new_shares=recipe.new_shares[:1],
    )


def set_device(recipe: Recipe, device: str) -> Recipe:
    """Return a recipe that trains on a device; unchanged if its model has no such setting."""
    model = model_class(recipe.model)
    if "device" not in [setting.name for setting in fields(model.settings_class)]:
        return recipe
    settings = dict(recipe.settings) | {"device": device}
    model(**settings)
    return replace(recipe, settings=settings)


def list_tables() -> list[str]:
    """Return the names of all tables.

    >>> "table1" in list_tables()
    True
    """
    return sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir())


@dataclass(frozen=True)
class TableLayout:
    """The layout of a table: its title, its metrics, the tables whose rows come first, and the
    remarks below.

    others: published figures by metric of methods that are not run.
    """

    title: str
    metrics: tuple[str, ...]
    others: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    includes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def read_layout(table: str) -> TableLayout:
    """Return the layout of a table, from its `table.toml`."""
    if table not in list_tables():
        raise BadSetting(f"there is no table {table!r}; {suggest_name(table, list_tables())}")
    return TableLayout(**_freeze(read_toml(FOLDER / table / "table.toml")))


def read_table(table: str, *, only: Sequence[str] = ()) -> list[Recipe]:
    """Return the recipes of a table: those of included tables, then its own in file order; or only
    the named rows."""
    recipes = [
        recipe for included in read_layout(table).includes for recipe in read_table(included)
    ]
    recipes += [read_recipe(path) for path in sorted((FOLDER / table).glob("[0-9]*.toml"))]
    rows = {recipe.row: recipe for recipe in recipes}
    for row in only:
        if row not in rows:
            raise BadSetting(f"{table} has no row {row!r}; {suggest_name(row, rows)}")
    return [recipe for recipe in recipes if not only or recipe.row in only]


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a TOML file."""
    # the number gives the order
    name = f"{path.parent.name}/{path.stem.lstrip('0123456789').lstrip('-')}"
    return Recipe(name=name, **_freeze(read_toml(path)))


def split_by_areas(data: str, *, seed: int, new_share: float, **shares: float) -> Problem:
    """Declare a share of the rows and of the columns new, and cut each of the four areas 75 / 5 /
    20, or by `shares`.

    With a share of 0 there is only area I, and the split is that of `split_known`.
    """
    matrix = _load_matrix(data)
    return Problem.from_areas(
        split_areas(matrix, new_rows=new_share, new_columns=new_share, seed=seed, **shares)
    )


def split_known(data: str, *, seed: int, new_share: float, **shares: float) -> Problem:
    """Cut the entries 75 / 5 / 20 at random, or by `shares`; all rows and columns are known."""
    return Problem.from_split(split_entries(_load_matrix(data), seed=seed, **shares))


def load_published(data: str, *, seed: int, new_share: float) -> Problem:
    """Load the split published with the data set; the seed draws validation entries if it has
    none."""
    if data == GENERATED:
        return split_known(data, seed=seed, new_share=new_share)
    split = load_split(data)
    if split.validation.n_entries == 0:
        parts = split_entries(split.train, train=0.95, validation=0.05, test=0.0, seed=seed)
        split = Split(parts.train, parts.validation, split.test)
    return Problem.from_split(split)


def load_interactions(data: str, *, seed: int, new_share: float) -> Problem:
    """Load the split published with a data set without values; models hold out training entries
    themselves."""
    if data != GENERATED:
        return Problem.from_split(load_split(data))
    rows, columns, _ = _load_matrix(data).entries()
    pairs = ObservedMatrix.from_interactions(rows, columns)
    return Problem.from_split(split_entries(pairs, train=0.8, validation=0.0, test=0.2, seed=seed))


def split_sequences(data: str, *, seed: int, new_share: float) -> Problem:
    """Keep the last entry of each row for the test and the one before for validation:
    leave-one-out, all columns."""
    if data == GENERATED:
        rows, columns, _ = _load_matrix(data).entries()
        places = np.random.default_rng(0).permutation(rows.size).astype(np.int32)
        matrix = ObservedMatrix.from_interactions(rows, columns).with_extras(Extras(places=places))
    else:
        matrix = load_sequences(data)
    return Problem.from_split(split_last(matrix, n=1, validation=1))


def _load_matrix(data: str) -> ObservedMatrix:
    return generate(400, 300, density=0.1, seed=0).matrix if data == GENERATED else load(data)


PROTOCOLS: dict[str, Callable[..., Problem]] = {
    "areas": split_by_areas,
    "areas-79-1-20": partial(split_by_areas, train=0.79, validation=0.01, test=0.2),
    "entries": split_known,
    # 90 / 10 at random, as most papers on rating prediction do; 2 of the 90 % are for validation
    "random": partial(split_known, train=0.88, validation=0.02, test=0.1),
    "published": load_published,
    "interactions": load_interactions,
    "last": split_sequences,
}


def _freeze(value: Any) -> Any:
    """Return content of TOML with tuples in place of lists."""
    if isinstance(value, list):
        return tuple(_freeze(item) for item in value)
    return {key: _freeze(item) for key, item in value.items()} if isinstance(value, dict) else value
