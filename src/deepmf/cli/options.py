"""The options that several commands share, so that one name means one thing everywhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ParameterInfo

from deepmf.models.registry import MODELS, model_class


class FlagCommand(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments and options."""
        return _without_type(super().get_params(ctx))


class FlagGroup(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options that all its commands share."""
        return _without_type(super().get_params(ctx))


def _without_type(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


Command = TypeVar("Command", bound=Callable[..., None])


class Without:
    """In `Annotated[Group, Without("wide")]`: the options of a group that a command does not take."""

    def __init__(self, *names: str) -> None:
        self.names = names


class _Group(NamedTuple):
    """A parameter that is a group: its class, and the parameter of each option that takes its place."""

    kind: type[Any]
    options: dict[str, inspect.Parameter]

    def gathered(self, given: dict[str, Any]) -> Any:
        """Return the group that options make, and take them from those that were given."""
        return self.kind(**{name: given.pop(option.name) for name, option in self.options.items()})


def takes_groups(command: Command) -> Command:
    """Return a command that has the options of a group in the place of each parameter that is one, as typer reads it.

    A group is a dataclass; those of its fields that are annotated with an option of typer are options.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: group for name, hint in hints.items() if (group := _group(name, hint)) is not None}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        plain = parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += groups[name].options.values() if name in groups else [plain]

    @wraps(command)
    def expanded(**given: Any) -> None:
        found = {name: group.gathered(given) for name, group in groups.items()}
        command(**given, **found)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return cast("Command", expanded)


def _group(parameter: str, hint: Any) -> _Group | None:
    """Return the group that a parameter is; None where it is an option or an argument."""
    kind, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return None
    left_out = {name for each in more if isinstance(each, Without) for name in each.names}
    hints = get_type_hints(kind, include_extras=True)
    return _Group(
        kind,
        {
            field.name: inspect.Parameter(
                f"{parameter}_{field.name}",  # names of options are theirs alone: a command may have such a parameter
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(kind)
            if field.name not in left_out and _is_option(hints[field.name])
        },
    )


def _is_option(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(isinstance(each, ParameterInfo) for each in get_args(hint))


def model_names() -> list[str]:
    """Return the names that `--model` takes."""
    return list(MODELS)


def dataset_names() -> list[str]:
    """Return the names that the catalogue of data sets has."""
    from deepmf.data.datasets import DATASETS

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
    return [field.name for field in fields(model_class(model).settings_class)] if model in MODELS else []


VALIDATION_SHARE = 0.05


_FILES = "Files"


Ratings = Annotated[
    Path,
    typer.Argument(
        metavar="RATINGS",
        help="Entries: csv, tsv, parquet, jsonl, MovieLens .dat, .npz; also .gz, .zst; a store of deepmf pack; - for "
        "csv from standard input.",
    ),
]

Validation = Annotated[
    Path | None,
    typer.Option(
        "--validation",
        metavar="FILE",
        help="Entries that choose the best epoch, or settings; they are never trained on.",
    ),
]

ValidationShare = Annotated[
    float | None,
    typer.Option(
        "--validation-share",
        metavar="SHARE",
        help="Without --validation: the share of the entries that is split off at random (by --seed) for that, "
        f"instead of {VALIDATION_SHARE:g} (fit leaves that to dmf-o itself); 0 for none.",
    ),
]

ModelName = Annotated[
    str,
    typer.Option("--model", metavar="NAME", help=f"What to fit: {', '.join(MODELS)}.", autocompletion=model_names),
]

Effort = Annotated[
    str | None,
    typer.Option(
        "--effort",
        metavar="quick|normal|best",
        help="How much time to spend for accuracy, with --model dmf-o; normal unless set.",
    ),
]

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting, such as dropout=.5 or hidden_sizes=512,256 (deepmf settings MODEL lists all); repeatable.",
        autocompletion=assignments,
    ),
]

Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings by name in a TOML file; --set overrides it.")
]

ScaleText = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar="SCALE",
        help="All levels (1,2,3,4,5) or an interval (0:100), if not all of it occurs in the file.",
    ),
]

Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="The seed of everything random; 0 unless set.")]

Device = Annotated[
    str | None,
    typer.Option("--device", metavar="auto|cpu|cuda", help="Where to train; auto uses a GPU if there is one."),
]


Row = Annotated[
    str | None,
    typer.Option("--row", metavar="NAME", help="Name or position (from 0) of the row ids.", rich_help_panel=_FILES),
]

Column = Annotated[
    str | None,
    typer.Option(
        "--column", metavar="NAME", help="Name or position (from 0) of the column ids.", rich_help_panel=_FILES
    ),
]

Value = Annotated[
    str | None,
    typer.Option("--value", metavar="NAME", help="Name or position (from 0) of the values.", rich_help_panel=_FILES),
]

Separator = Annotated[
    str | None,
    typer.Option(
        "--separator", metavar="TEXT", help="The field separator; detected unless given.", rich_help_panel=_FILES
    ),
]

Duplicates = Annotated[
    str,
    typer.Option(
        "--duplicates",
        metavar="error|first|last|mean",
        help="What to do with a pair that occurs twice.",
        rich_help_panel=_FILES,
    ),
]

MissingValues = Annotated[
    str,
    typer.Option(
        "--missing",
        metavar="error|drop",
        help="What to do with a line without a value (empty, NA, null, ...): stop with an error, or leave it out.",
        rich_help_panel=_FILES,
    ),
]

DecimalOption = Annotated[
    str,
    typer.Option("--decimal", metavar=".|,", help="The decimal mark of values.", rich_help_panel=_FILES),
]

Wide = Annotated[
    bool,
    typer.Option(
        "--wide",
        help="The file is a wide table: a line per row, a column per column, gaps where nothing is observed.",
        rich_help_panel=_FILES,
    ),
]

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file or folder; - for standard input.")]

Extend = Annotated[
    list[Path] | None,
    typer.Option(
        "--extend", metavar="FILE", help="Entries of new rows and columns, to add without training; repeatable."
    ),
]

_FEATURES = "Features of rows and columns"


RowFeatures = Annotated[
    Path | None,
    typer.Option(
        "--row-features",
        metavar="FILE",
        help="What is known of rows beside their entries: csv, tsv, parquet or jsonl with a line per row, its id and "
        "its features.",
        rich_help_panel=_FEATURES,
    ),
]

ColumnFeatures = Annotated[
    Path | None,
    typer.Option(
        "--column-features", metavar="FILE", help="The same for columns: a line per column.", rich_help_panel=_FEATURES
    ),
]

FeatureLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--feature-label",
        metavar="NAME",
        help="The name of the ids in a file of features; that of the entries, a usual one or the first unless set; "
        "repeatable.",
        rich_help_panel=_FEATURES,
    ),
]

FeatureKinds = Annotated[
    str | None,
    typer.Option(
        "--feature-kinds",
        metavar="NAME=KIND,NAME=KIND",
        help="Kinds of features that are not what they look like: number, category, list or date.",
        rich_help_panel=_FEATURES,
    ),
]

FeatureValues = Annotated[
    str | None,
    typer.Option(
        "--features",
        metavar="NAME=VALUE,NAME=VALUE",
        help="What is known of a new row, beside its --history or instead of it, by a model fitted with "
        "--row-features.",
    ),
]

AreasFlag = Annotated[
    bool,
    typer.Option("--areas", help="Some rows and columns are new: errors for known and new ones apart (areas I to IV)."),
]

NewRows = Annotated[
    float, typer.Option("--new-rows", metavar="SHARE", help="With --areas: the share of the rows that are new.")
]

NewColumns = Annotated[
    float, typer.Option("--new-columns", metavar="SHARE", help="With --areas: the share of the columns that are new.")
]

RowId = Annotated[str | None, typer.Option("--row", metavar="ID", help="A row that the model knows.")]

History = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help="Instead of --row: a column and a value per line, which describe a new row; it is not kept. "
        "- for standard input.",
    ),
]

UnknownIds = Annotated[
    str,
    typer.Option(
        "--unknown",
        metavar="fallback|nan|error",
        help="What to do with a pair whose row or column the model does not know: predict it by the means of what is "
        "known, leave it empty, or stop with an error.",
    ),
]

FrameFile = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="A .csv, .tsv, .jsonl or .parquet; - for standard output (csv, or with --json JSON lines).",
    ),
]

SafeCsv = Annotated[
    bool,
    typer.Option(
        "--safe-csv", help="Put an apostrophe before ids in csv and tsv that a spreadsheet would read as formulas."
    ),
]

FrameJson = Annotated[bool, typer.Option("--json", help="Print JSON: a summary of the file, or with - its lines.")]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
