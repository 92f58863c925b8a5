"""Arguments and options that several commands share, so that a name means the same everywhere, and their help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import wraps
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from deepmf.models.registry import MODELS, model_class

DEFAULT_MODEL = "dmf-o"
VALIDATION_SHARE = 0.05

# The groups of options in the help of a command

READING = "Reading entries"
TRAINING = "Model and training"
BESIDE = "Features and names"
OUTPUT = "Output"

_GROUPS = ("Arguments", "Options", TRAINING, BESIDE, READING, OUTPUT)
_FLAGS_WIDTH = 26  # columns of a line that flags may take; longer ones stand in a line of their own


class GroupedCommand(TyperCommand):
    """A command that lists its options in groups: the `rich_help_panel` of an option, or "Options"."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups that have options, in a fixed order."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            is_argument = parameter.param_type_name == "argument"
            group = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or "Options"
            groups.setdefault(group, []).append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records, col_max=_FLAGS_WIDTH)


# Groups of options that several commands take together


def with_option_groups(**only: Sequence[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace each parameter of a command that is a dataclass of options by these options.

    only: the options of a group that the command takes, by the name of the parameter; default: all.
    """

    def expand(command: Callable[..., None]) -> Callable[..., None]:
        own, parameters = signature(command, eval_str=True), list[Parameter]()
        groups: dict[str, tuple[Any, list[str]]] = {}
        for name, parameter in own.parameters.items():
            if is_dataclass(parameter.annotation):
                known = _list_options(parameter.annotation)
                groups[name] = parameter.annotation, list(only.get(name, known))
                parameters += [known[option] for option in groups[name][1]]
            else:
                parameters.append(parameter)

        @wraps(command)
        def run(**given: Any) -> None:
            for name, (group, taken) in groups.items():
                given[name] = group(**{option: given.pop(option) for option in taken})
            command(**given)

        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return expand


def _list_options(group: Any) -> dict[str, Parameter]:
    """Return the options of a group by name: its fields whose types are options of this module, or that have a help."""
    found = {}
    for field in fields(group):
        declared = str(field.type).removeprefix("options.")
        annotation = globals()[declared] if declared != field.type else _declare_option(group, field)
        if annotation is not None:
            found[field.name] = Parameter(
                field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation
            )
    return found


def _declare_option(group: Any, field: Field[Any]) -> Any:
    """Return the type of an option that is declared by the help of a field; None for a field without."""
    if not field.metadata:
        return None
    declared = get_type_hints(group)[field.name]
    words = [word for each in get_args(declared) for word in get_args(each)]  # of a literal
    metavar = "|".join(words) or (None if declared is bool else "N" if declared is int else "NUMBER")
    option = typer.Option(f"--{field.name.replace('_', '-')}", metavar=metavar, help=field.metadata["help"])
    return Annotated[str | None if words else declared, option]


# Words that the shell completes after Tab


def list_models() -> list[str]:
    """Return the names that `--model` takes."""
    return list(MODELS)


def list_datasets() -> list[str]:
    """Return the names of the public data sets."""
    from deepmf.data.datasets import DATASETS

    return list(DATASETS)


def list_tables() -> list[str]:
    """Return the names of the tables that can be reproduced, without importing `deepmf.experiments`."""
    spec = find_spec("deepmf.experiments")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    recipes = Path(spec.submodule_search_locations[0], "recipes")
    return sorted(folder.name for folder in recipes.iterdir() if folder.is_dir())


def list_settings(model: str) -> list[str]:
    """Return the names of a model's settings; none if there is no such model.

    >>> list_settings("means")
    ['seed', 'times', 'half_life', 'presence', 'rank_by', 'shrinkage', 'feature_penalty']
    """
    return [field.name for field in fields(model_class(model).settings_class)] if model in MODELS else []


def list_assignments(context: typer.Context) -> list[str]:
    """Return the settings of the model on the command line, as `--set` takes them."""
    return [f"{name}=" for name in list_settings(context.params.get("model") or DEFAULT_MODEL)]


# Entries and how to read them

Ratings = Annotated[
    Path,
    typer.Argument(
        metavar="RATINGS",
        help="Entries: csv, tsv, parquet, jsonl (a JSON object in each line), xlsx, MovieLens .dat, .npz, .npy, "
        "also .gz and .zst; a store of pack; - for csv on standard input.",
    ),
]

ScaleText = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar="SCALE",
        help="Levels (1,2,3,4,5) or interval (0:100) of the values; default: as in the file.",
        rich_help_panel=READING,
    ),
]

Row = Annotated[
    str | None,
    typer.Option(
        "--row",
        metavar="NAME",
        help="Field of the row ids: name or position from 0; default: detected.",
        rich_help_panel=READING,
    ),
]

Column = Annotated[
    str | None,
    typer.Option(
        "--column",
        metavar="NAME",
        help="Field of the column ids: name or position; default: detected.",
        rich_help_panel=READING,
    ),
]

Value = Annotated[
    str | None,
    typer.Option(
        "--value",
        metavar="NAME",
        help="Field of the values: name or position; default: detected.",
        rich_help_panel=READING,
    ),
]

NoValues = Annotated[
    bool,
    typer.Option(
        "--no-values",
        help="Read interactions without values, such as clicks; default for a file of two fields.",
        rich_help_panel=READING,
    ),
]

Count = Annotated[
    str | None,
    typer.Option(
        "--count",
        metavar="NAME",
        help="Field that counts interactions, such as plays; implies --no-values.",
        rich_help_panel=READING,
    ),
]

Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="NAME",
        help="Field of the times: Unix times or ISO dates; default: detected.",
        rich_help_panel=READING,
    ),
]

Weight = Annotated[
    str | None,
    typer.Option(
        "--weight",
        metavar="NAME",
        help="Field of the weights of entries, from 1e-6 to 1e6; default: all are 1.",
        rich_help_panel=READING,
    ),
]

At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="DATE",
        help="Time to predict for, if the model was fitted with times; default: the latest entry's.",
    ),
]

Separator = Annotated[
    str | None,
    typer.Option("--separator", metavar="TEXT", help="Field separator; default: detected.", rich_help_panel=READING),
]

Duplicates = Annotated[
    str,
    typer.Option(
        "--duplicates",
        metavar="error|first|last|latest|mean",
        help="What to do with repeated (row, column) pairs.",
        rich_help_panel=READING,
    ),
]

MissingValues = Annotated[
    str,
    typer.Option(
        "--missing", metavar="error|drop", help="What to do with lines without a value.", rich_help_panel=READING
    ),
]

DecimalMark = Annotated[
    str,
    typer.Option(
        "--decimal", metavar=".|,", help="Decimal mark of the values, read or written.", rich_help_panel=READING
    ),
]

Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="Encoding of text files, such as cp1250; default: UTF-8, UTF-16 or cp1252, detected.",
        rich_help_panel=READING,
    ),
]

Form = Annotated[
    str | None,
    typer.Option(
        "--form",
        metavar="NAME",
        help="What a line of text holds: entries, lists (a row and its columns) or inter (RecBole); default: detected.",
        rich_help_panel=READING,
    ),
]

Wide = Annotated[
    bool,
    typer.Option(
        "--wide",
        help="Read a wide table: a line per row, a field per column, gaps where unobserved.",
        rich_help_panel=READING,
    ),
]

ExcludeColumns = Annotated[
    str | None,
    typer.Option(
        "--exclude-columns",
        metavar="NAME,NAME",
        help="Columns of a wide table to leave out, such as age.",
        rich_help_panel=READING,
    ),
]

# Models and training

ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME",
        help=f"Model to fit: {', '.join(MODELS)}.",
        autocompletion=list_models,
        rich_help_panel=TRAINING,
    ),
]

Effort = Annotated[
    str | None,
    typer.Option(
        "--effort",
        metavar="quick|normal|best",
        help="Training time to spend on accuracy, for dmf-o and bayesian; default: normal.",
        rich_help_panel=TRAINING,
    ),
]

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Setting of the model, such as dropout=0.5 or hidden_sizes=512,256; repeatable. deepmf settings MODEL "
        "lists all.",
        autocompletion=list_assignments,
        rich_help_panel=TRAINING,
    ),
]

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="TOML file of settings; --set overrides it.", rich_help_panel=TRAINING
    ),
]

Validation = Annotated[
    Path | None,
    typer.Option(
        "--validation",
        metavar="FILE",
        help="Validation entries, used only for early stopping and to compare settings.",
        rich_help_panel=TRAINING,
    ),
]

ValidationShare = Annotated[
    float | None,
    typer.Option(
        "--validation-share",
        metavar="SHARE",
        help=f"Share of the entries held out for validation, 0 for none; default: {VALIDATION_SHARE:g}; in fit, "
        "dmf-o chooses it.",
        rich_help_panel=TRAINING,
    ),
]

Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="Random seed; default: 0.", rich_help_panel=TRAINING)
]

Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda",
        help="Device to train on; auto uses a GPU if there is one.",
        rich_help_panel=TRAINING,
    ),
]

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file or folder; - for standard input.")]

Extend = Annotated[
    list[Path] | None,
    typer.Option(
        "--extend", metavar="FILE", help="Entries of new rows and columns to add without training; repeatable."
    ),
]

# Features of rows and columns

RowFeatures = Annotated[
    Path | None,
    typer.Option(
        "--row-features",
        metavar="FILE",
        help="Features of rows: csv, tsv, parquet, jsonl or xlsx with a line per row.",
        rich_help_panel=BESIDE,
    ),
]

ColumnFeatures = Annotated[
    Path | None,
    typer.Option(
        "--column-features", metavar="FILE", help="Features of columns, with a line per column.", rich_help_panel=BESIDE
    ),
]

FeatureLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--feature-label",
        metavar="NAME",
        help="Id column of the features file; default: detected; repeatable.",
        rich_help_panel=BESIDE,
    ),
]

FeatureKinds = Annotated[
    str | None,
    typer.Option(
        "--feature-kinds",
        metavar="NAME=KIND,NAME=KIND",
        help="Kinds of features that are detected wrongly: number, category, list or date.",
        rich_help_panel=BESIDE,
    ),
]

# Names of rows and columns

RowNames = Annotated[
    Path | None,
    typer.Option(
        "--row-names",
        metavar="FILE",
        help="Names shown beside row ids: a table of ids and names.",
        rich_help_panel=BESIDE,
    ),
]

ColumnNames = Annotated[
    Path | None,
    typer.Option(
        "--column-names",
        metavar="FILE",
        help="Names shown beside column ids, such as titles: a table of ids and names.",
        rich_help_panel=BESIDE,
    ),
]

# Splits into areas

Areas = Annotated[
    bool, typer.Option("--areas", help="Make some rows and columns new, and treat areas I to IV separately.")
]

NewRows = Annotated[float, typer.Option("--new-rows", metavar="SHARE", help="Share of new rows, with --areas.")]

NewColumns = Annotated[
    float, typer.Option("--new-columns", metavar="SHARE", help="Share of new columns, with --areas.")
]

# Ranking metrics

ListLength = Annotated[
    int | None, typer.Option("-n", metavar="N", help="Number of ranked columns per row, for ranking; default: 10.")
]

Candidates = Annotated[
    int | None,
    typer.Option(
        "--candidates",
        metavar="N",
        help="Rank relevant columns among N others drawn at random, for ranking; default: all columns.",
    ),
]

# One row, known or new

RowId = Annotated[str | None, typer.Option("--row", metavar="ID", help="Row that the model knows.")]

History = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help="New row instead of --row: a column and a value per line, not stored; - for standard input.",
    ),
]

Rows = Annotated[
    Path | None,
    typer.Option(
        "--rows", metavar="FILE", help="Rows, one per line, instead of --row; needs -o; - for standard input."
    ),
]

EveryRow = Annotated[bool, typer.Option("--all", help="All rows that the model knows, instead of --row; needs -o.")]

FeatureValues = Annotated[
    str | None,
    typer.Option(
        "--features",
        metavar="NAME=VALUE,NAME=VALUE",
        help="Features of a new row, with or without --history; the model must know row features.",
    ),
]

# Results

UnknownIds = Annotated[
    str,
    typer.Option(
        "--unknown",
        metavar="fallback|nan|error",
        help="Pairs with an unknown row or column: predict them by the means, leave them empty, or stop.",
    ),
]

FrameFile = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="File to write: .csv, .tsv, .jsonl or .parquet; - for standard output.",
        rich_help_panel=OUTPUT,
    ),
]

Digits = Annotated[
    int | None,
    typer.Option(
        "--digits",
        metavar="N",
        min=0,
        max=15,
        help="Round numbers to N digits after the decimal mark.",
        rich_help_panel=OUTPUT,
    ),
]

Recommended = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="File to write: .csv, .tsv, .jsonl or .parquet; - for standard output. With --engine, a new folder.",
        rich_help_panel=OUTPUT,
    ),
]

Engine = Annotated[
    str | None,
    typer.Option("--engine", metavar="ray", help="Recommend on the cores or machines of a Ray cluster; needs -o."),
]

RankingDevice = Annotated[
    str | None, typer.Option("--device", metavar="auto|cpu|cuda", help="Rank with torch, on a GPU if set; needs -o.")
]

Levels = Annotated[bool, typer.Option("--levels", help="Predict levels of the scale.")]

SafeCsv = Annotated[
    bool,
    typer.Option(
        "--safe-csv",
        help="Put an apostrophe before ids that a spreadsheet would run as formulas.",
        rich_help_panel=OUTPUT,
    ),
]

FrameJson = Annotated[
    bool,
    typer.Option(
        "--json", help="Print a summary as JSON; with -o -, write JSON lines instead of csv.", rich_help_panel=OUTPUT
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)]
