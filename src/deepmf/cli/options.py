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


# One option or argument, declared as the help shows it


def option(shown: str, text: str, group: str | None = None, **more: Any) -> Any:
    """Return an option such as `--output -o FILE`: its flags, then the word for its value; and its help."""
    words = shown.split()
    flags = [word for word in words if word.startswith("-")]
    metavar = " ".join(words[len(flags) :]) or None
    return typer.Option(*flags, metavar=metavar, help=text, rich_help_panel=group, **more)


def argument(shown: str, text: str, **more: Any) -> Any:
    """Return an argument, the word for its value, and its help."""
    return typer.Argument(metavar=shown, help=text, **more)


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
    metavar = "|".join(words) or (
        ""
        if bool in (declared, *get_args(declared))
        else "N"
        if declared is int
        else "NAME"
        if str in get_args(declared)
        else "NUMBER"
    )
    flag = field.name.replace("_", "-")
    flag = f"{flag}/--no-{flag}" if bool in get_args(declared) else flag
    offered = option(f"--{flag} {metavar}", field.metadata["help"])
    return Annotated[str | None if words else declared, offered]


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
    ['seed', 'times', 'presence', 'rank_by', 'shrinkage', 'feature_penalty']
    """
    return [field.name for field in fields(model_class(model).settings_class)] if model in MODELS else []


def list_assignments(context: typer.Context) -> list[str]:
    """Return the settings of the model on the command line, as `--set` takes them."""
    return [f"{name}=" for name in list_settings(context.params.get("model") or DEFAULT_MODEL)]


# Entries and how to read them

Ratings = Annotated[
    Path,
    argument(
        "RATINGS",
        "Entries: csv, tsv, parquet, jsonl (a JSON object in each line), xlsx, MovieLens .dat, .npz, .npy, "
        "also .gz and .zst; a store of pack; - for csv on standard input.",
    ),
]
ScaleText = Annotated[
    str | None,
    option("--scale SCALE", "Levels (1,2,3,4,5) or interval (0:100) of the values; default: as in the file.", READING),
]
Row = Annotated[
    str | None, option("--row NAME", "Field of the row ids: name or position from 0; default: detected.", READING)
]
Column = Annotated[
    str | None, option("--column NAME", "Field of the column ids: name or position; default: detected.", READING)
]
Value = Annotated[
    str | None, option("--value NAME", "Field of the values: name or position; default: detected.", READING)
]
NoValues = Annotated[
    bool,
    option(
        "--no-values", "Read interactions without values, such as clicks; default for a file of two fields.", READING
    ),
]
Count = Annotated[
    str | None, option("--count NAME", "Field that counts interactions, such as plays; implies --no-values.", READING)
]
Time = Annotated[
    str | None, option("--time NAME", "Field of the times: Unix times or ISO dates; default: detected.", READING)
]
Weight = Annotated[
    str | None,
    option("--weight NAME", "Field of the weights of entries, from 1e-6 to 1e6; default: all are 1.", READING),
]
At = Annotated[
    str | None,
    option("--at DATE", "Time to predict for, if the model was fitted with times; default: the latest entry's."),
]
Separator = Annotated[str | None, option("--separator TEXT", "Field separator; default: detected.", READING)]
Duplicates = Annotated[
    str, option("--duplicates error|first|last|latest|mean", "What to do with repeated (row, column) pairs.", READING)
]
MissingValues = Annotated[str, option("--missing error|drop", "What to do with lines without a value.", READING)]
DecimalMark = Annotated[str, option("--decimal .|,", "Decimal mark of the values, read or written.", READING)]
Encoding = Annotated[
    str | None,
    option(
        "--encoding NAME",
        "Encoding of text files, such as cp1250; default: UTF-8, UTF-16 or cp1252, detected.",
        READING,
    ),
]
Form = Annotated[
    str | None,
    option(
        "--form NAME",
        "What a line of text holds: entries, lists (row and columns), sequences (in order), inter; default: detected.",
        READING,
    ),
]
Wide = Annotated[
    bool, option("--wide", "Read a wide table: a line per row, a field per column, gaps where unobserved.", READING)
]
ExcludeColumns = Annotated[
    str | None, option("--exclude-columns NAME,NAME", "Columns of a wide table to leave out, such as age.", READING)
]

# Models and training

ModelName = Annotated[
    str, option("--model NAME", f"Model to fit: {', '.join(MODELS)}.", TRAINING, autocompletion=list_models)
]
Effort = Annotated[
    str | None,
    option(
        "--effort quick|normal|best",
        "Training time to spend on accuracy, for dmf-o and bayesian; default: normal.",
        TRAINING,
    ),
]
Assignments = Annotated[
    list[str] | None,
    option(
        "--set NAME=VALUE",
        "Setting of the model, such as dropout=0.5 or hidden_sizes=512,256; repeatable. deepmf settings MODEL "
        "lists all.",
        TRAINING,
        autocompletion=list_assignments,
    ),
]
Config = Annotated[Path | None, option("--config FILE", "TOML file of settings; --set overrides it.", TRAINING)]
Validation = Annotated[
    Path | None,
    option("--validation FILE", "Validation entries, used only for early stopping and to compare settings.", TRAINING),
]
ValidationShare = Annotated[
    float | None,
    option(
        "--validation-share SHARE",
        f"Share of the entries held out for validation, 0 for none; default: {VALIDATION_SHARE:g}; in fit, "
        "dmf-o chooses it.",
        TRAINING,
    ),
]
Seed = Annotated[int | None, option("--seed N", "Random seed; default: 0.", TRAINING)]
Device = Annotated[
    str | None, option("--device auto|cpu|cuda", "Device to train on; auto uses a GPU if there is one.", TRAINING)
]
ModelFile = Annotated[Path, argument("MODEL", "Model file or folder; - for standard input.")]
Extend = Annotated[
    list[Path] | None, option("--extend FILE", "Entries of new rows and columns to add without training; repeatable.")
]

# Features of rows and columns

RowFeatures = Annotated[
    Path | None,
    option("--row-features FILE", "Features of rows: csv, tsv, parquet, jsonl or xlsx with a line per row.", BESIDE),
]
ColumnFeatures = Annotated[
    Path | None, option("--column-features FILE", "Features of columns, with a line per column.", BESIDE)
]
FeatureLabels = Annotated[
    list[str] | None,
    option("--feature-label NAME", "Id column of the features file; default: detected; repeatable.", BESIDE),
]
FeatureKinds = Annotated[
    str | None,
    option(
        "--feature-kinds NAME=KIND,NAME=KIND",
        "Kinds of features that are detected wrongly: number, category, list, date, vector or text.",
        BESIDE,
    ),
]

# Names of rows and columns

RowNames = Annotated[
    Path | None, option("--row-names FILE", "Names shown beside row ids: a table of ids and names.", BESIDE)
]
ColumnNames = Annotated[
    Path | None,
    option("--column-names FILE", "Names shown beside column ids, such as titles: a table of ids and names.", BESIDE),
]

# Splits into areas

Areas = Annotated[bool, option("--areas", "Make some rows and columns new, and treat areas I to IV separately.")]
NewRows = Annotated[float, option("--new-rows SHARE", "Share of new rows, with --areas.")]
NewColumns = Annotated[float, option("--new-columns SHARE", "Share of new columns, with --areas.")]

# Ranking metrics

ListLength = Annotated[int | None, option("-n N", "Number of ranked columns per row, for ranking; default: 10.")]

# One row, known or new

RowId = Annotated[str | None, option("--row ID", "Row that the model knows.")]
History = Annotated[
    Path | None,
    option(
        "--history FILE", "New row instead of --row: a column and a value per line, not stored; - for standard input."
    ),
]
Rows = Annotated[
    Path | None, option("--rows FILE", "Rows, one per line, instead of --row; needs -o; - for standard input.")
]
EveryRow = Annotated[bool, option("--all", "All rows that the model knows, instead of --row; needs -o.")]
FeatureValues = Annotated[
    str | None,
    option(
        "--features NAME=VALUE,NAME=VALUE",
        "Features of a new row, with or without --history; the model must know row features.",
    ),
]

# Results

UnknownIds = Annotated[
    str,
    option(
        "--unknown fallback|nan|error",
        "Pairs with an unknown row or column: predict them by the means, leave them empty, or stop.",
    ),
]
FrameFile = Annotated[
    str, option("--output -o FILE", "File to write: .csv, .tsv, .jsonl or .parquet; - for standard output.", OUTPUT)
]
Digits = Annotated[
    int | None, option("--digits N", "Round numbers to N digits after the decimal mark.", OUTPUT, min=0, max=15)
]
Recommended = Annotated[
    str | None,
    option(
        "--output -o FILE",
        "File to write: .csv, .tsv, .jsonl or .parquet; - for standard output. With --engine, a new folder.",
        OUTPUT,
    ),
]
Engine = Annotated[str | None, option("--engine ray", "Recommend on the cores or machines of a Ray cluster; needs -o.")]
RankingDevice = Annotated[str | None, option("--device auto|cpu|cuda", "Rank with torch, on a GPU if set; needs -o.")]
Levels = Annotated[bool, option("--levels", "Predict levels of the scale.")]
SafeCsv = Annotated[
    bool, option("--safe-csv", "Put an apostrophe before ids that a spreadsheet would run as formulas.", OUTPUT)
]
FrameJson = Annotated[
    bool, option("--json", "Print a summary as JSON; with -o -, write JSON lines instead of csv.", OUTPUT)
]
Json = Annotated[bool, option("--json", "Print JSON.", OUTPUT)]
