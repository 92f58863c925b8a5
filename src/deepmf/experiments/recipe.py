"""A table of results beside the published figures: as Markdown, as CSV, and as cells for a terminal."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from deepmf.data.datasets import DATASETS, load, load_split
from deepmf.data.splits import Split, split_areas, split_entries
from deepmf.data.synthetic import generate
from deepmf.errors import BadSetting, UnreadableFile, nearest_name
from deepmf.evaluation.comparison import Problem
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.models.registry import model_class

# The name of a small matrix that is generated, for quick runs where no data set is at hand.
GENERATED = "generated"


def areas(data: str, *, seed: int, new_share: float) -> Problem:
    """Declare a share of the rows and of the columns new, and cut each of the four areas 75 / 5 / 20.

    With nothing new there is area I alone, and the split is that of `entries`.
    """
    return Problem.from_areas(split_areas(_matrix(data), new_rows=new_share, new_columns=new_share, seed=seed))


def areas_79_1_20(data: str, *, seed: int, new_share: float) -> Problem:
    """Declare rows and columns new as `areas` does, but leave only 1 % of the entries for validation."""
    shares = {"train": 0.79, "validation": 0.01, "test": 0.2}
    return Problem.from_areas(
        split_areas(_matrix(data), new_rows=new_share, new_columns=new_share, seed=seed, **shares)
    )


def entries(data: str, *, seed: int, new_share: float) -> Problem:
    """Cut the entries 75 / 5 / 20 at random; all rows and columns are known."""
    return Problem.from_split(split_entries(_matrix(data), train=0.75, validation=0.05, test=0.2, seed=seed))


def random(data: str, *, seed: int, new_share: float) -> Problem:
    """Cut the entries 90 / 10 at random, as most papers on rating prediction do; of the 90, 2 are for validation."""
    return Problem.from_split(split_entries(_matrix(data), train=0.88, validation=0.02, test=0.1, seed=seed))


def published(data: str, *, seed: int, new_share: float) -> Problem:
    """Take the parts that were published with the data set; the seed draws validation entries where none were."""
    if data == GENERATED:
        return entries(data, seed=seed, new_share=new_share)
    split = load_split(data)
    if split.validation.n_entries == 0:
        parts = split_entries(split.train, train=0.95, validation=0.05, test=0.0, seed=seed)
        split = Split(parts.train, parts.validation, split.test)
    return Problem.from_split(split)


def _matrix(data: str) -> ObservedMatrix:
    return generate(400, 300, density=0.1, seed=0).matrix if data == GENERATED else load(data)


PROTOCOLS: dict[str, Callable[..., Problem]] = {
    "areas": areas,
    "areas-79-1-20": areas_79_1_20,
    "entries": entries,
    "random": random,
    "published": published,
}


FOLDER = Path(__file__).parent / "recipes"

METRICS = ("rmse", "mae", "level_rmse", "level_mae", "median_rmse", "median_mae", "calibration_error", "coverage")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One row of a table: everything needed to run it, and what was published for it.

    name: the table and the file, such as "table1/dmf".
    protocol: how the data are split (`PROTOCOLS`); `new_shares` are those of new rows and columns that protocols
        with areas run, 0 where nothing is new.
    seeds: one split each; the seed of the split is also that of the model.
    settings: of the model; `quick` are those that replace them in a quick run.
    search: for each setting the values among which validation entries chose the one in `settings`.
    joined: whether validation entries join the inputs at test time, as in the authors' code.
    refit: whether, once validation entries have chosen the epoch, the method is fitted again on them too.
    published: area -> metric -> figure, from `source`; `assumptions` says what the source leaves open.
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
        """Whether its protocol declares some rows and columns new."""
        return self.protocol.startswith("areas")

    def candidates(self) -> Iterator[Recipe]:
        """Yield this recipe with every combination of the values that its search names."""
        for values in itertools.product(*self.search.values()):
            yield replace(self, settings=dict(self.settings) | dict(zip(self.search, values, strict=True)))


def quick(recipe: Recipe) -> Recipe:
    """Return a recipe that takes seconds: on generated data, two splits, with its quick settings. Never the result."""
    settings = dict(recipe.settings) | dict(recipe.quick)
    return replace(recipe, data=GENERATED, settings=settings, seeds=recipe.seeds[:2], new_shares=recipe.new_shares[:1])


def on_device(recipe: Recipe, device: str) -> Recipe:
    """Return a recipe that trains on a device; one whose method knows no devices stays as it is."""
    model = model_class(recipe.model)
    if "device" not in [each.name for each in fields(model.settings_class)]:
        return recipe
    settings = dict(recipe.settings) | {"device": device}
    model(**settings)
    return replace(recipe, settings=settings)


def tables() -> list[str]:
    """Return the names of all tables.

    >>> "table1" in tables()
    True
    """
    return sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir())


@dataclass(frozen=True)
class TableLayout:
    """What a table shows: its title, the metrics it compares, the tables whose rows come first, remarks underneath."""

    title: str
    metrics: tuple[str, ...]
    includes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def layout_of(table: str) -> TableLayout:
    """Return the layout of a table, from its `table.toml`."""
    if table not in tables():
        raise BadSetting(f"there is no table {table!r}; {nearest_name(table, tables())}")
    content = tomllib.loads((FOLDER / table / "table.toml").read_text(encoding="utf-8"))
    _check_keys(content, [each.name for each in fields(TableLayout)])
    return TableLayout(**{key: _frozen(value) for key, value in content.items()})


def read_table(table: str, *, only: Sequence[str] = ()) -> list[Recipe]:
    """Return the recipes of a table: rows of the tables it includes, then its own by file name; or some by name."""
    recipes = [recipe for included in layout_of(table).includes for recipe in read_table(included)]
    recipes += [read_recipe(path) for path in sorted((FOLDER / table).glob("[0-9]*.toml"))]
    rows = {recipe.row: recipe for recipe in recipes}
    for row in only:
        if row not in rows:
            raise BadSetting(f"{table} has no row {row!r}; {nearest_name(row, rows)}")
    return [recipe for recipe in recipes if not only or recipe.row in only]


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a TOML file; a key that does not exist is an error that names the nearest."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path} is not TOML ({error})") from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read ({error.strerror})") from error
    name = f"{path.parent.name}/{path.stem.lstrip('0123456789').lstrip('-')}"  # the number gives the order
    try:
        _check_keys(content, [each.name for each in fields(Recipe) if each.name != "name"])
        recipe = Recipe(name=name, **{key: _frozen(value) for key, value in content.items()})
        _check(recipe)
    except TypeError as error:
        raise BadSetting(f"the recipe {path}: {_missing(error)}") from error
    except BadSetting as error:
        raise BadSetting(f"the recipe {path}: {error}") from error
    return recipe


def _check(recipe: Recipe) -> None:
    _check_choice("protocol", recipe.protocol, list(PROTOCOLS))
    _check_choice("data set", recipe.data, [*DATASETS, GENERATED])
    if not recipe.seeds or not all(isinstance(seed, int) and seed >= 0 for seed in recipe.seeds):
        raise BadSetting(f"seeds must be whole numbers that are not negative, at least one; got {recipe.seeds!r}")
    if not recipe.new_shares or not all(_is_share(share) for share in recipe.new_shares):
        raise BadSetting(f"new_shares must be numbers from 0 to less than 1, at least one; got {recipe.new_shares!r}")
    for settings in (recipe.settings, dict(recipe.settings) | dict(recipe.quick)):
        model_class(recipe.model)(**settings)
    for candidate in recipe.candidates():
        model_class(recipe.model)(**candidate.settings)
    for area, figures in recipe.published.items():
        _check_choice("area", area, [*AREAS, "all"])
        for metric in figures:
            _check_choice("metric", metric, list(METRICS))
    if recipe.joined and recipe.refit:
        raise BadSetting(
            "validation entries are either joined to the inputs or fitted again; joined and refit are true"
        )
    if recipe.published and not recipe.source:
        raise BadSetting("published figures need their source")


def _is_share(share: Any) -> bool:
    return isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < 1


def _check_keys(content: Mapping[str, Any], known: list[str]) -> None:
    for key in content:
        if key not in known:
            raise BadSetting(f"there is no key {key!r}; {nearest_name(key, known)}")


def _check_choice(what: str, given: str, choices: list[str]) -> None:
    if given not in choices:
        raise BadSetting(f"there is no {what} {given!r}; {nearest_name(given, choices)}")


def _frozen(value: Any) -> Any:
    """Return lists as tuples, at any depth."""
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return {key: _frozen(item) for key, item in value.items()} if isinstance(value, dict) else value


def _missing(error: TypeError) -> str:
    """Say which key is missing, in the words of the file."""
    return str(error).replace("Recipe.__init__() missing", "it lacks").replace("keyword-only argument", "key")


NAMES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "level_rmse": "RMSE of levels",
    "level_mae": "MAE of levels",
    "calibration_error": "calibration error",
    "coverage": "share inside the 90 % interval",
}
