"""Arguments and options that several commands share, so that a name means the same everywhere, and
their help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

VALIDATION_SHARE = 0.05

# The groups of options in the help of a command

READING = "Reading entries"
TRAINING = "Model and training"
BESIDE = "Features and names"
OUTPUT = "Output"

_GROUPS = ("Arguments", "Options", TRAINING, BESIDE, READING, OUTPUT)


class _WordReader:
    """Reads the words of a parameter: texts and paths at once, all others as typer does.

    typer imports pydantic to read them, which takes a sixth of the time of a small command.
    """

    def __init__(self, parameter: Any) -> None:
        self._find_typers: Callable[[], Any] = parameter.get_runtime_param
        annotation = parameter.type_descriptor.annotation
        (self._kind,) = get_args(annotation) or (annotation,)

    def get(self) -> _WordReader:
        """Return this reader, which typer asks the parameter for."""
        return self

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        """Return the value of a parameter."""
        if param.multiple or param.nargs == -1:
            words = value or ()
            if self._kind in (str, Path):
                return tuple(map(self._kind, words))
        elif value is None or self._kind is str or value is param.default:
            return value
        elif self._kind is Path:
            return Path(value)
        return self._find_typers().coerce(value, param=param, ctx=ctx)


class _LightWords:
    """What a command, or a group of commands, does to read texts and paths without pydantic."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            is_typers = "get_runtime_param" not in vars(parameter)
            if is_typers and hasattr(parameter, "get_runtime_param"):  # typer from 0.29 on
                parameter.get_runtime_param = _WordReader(parameter).get
        return parameters


class CommandGroup(_LightWords, TyperGroup):
    """A group of commands."""


class GroupedCommand(_LightWords, TyperCommand):
    """A command that lists its options in groups: the `rich_help_panel` of an option, or
    "Options"."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups that have options, in a fixed order."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            group = "Arguments" if parameter.param_type_name == "argument" else "Options"
            groups[getattr(parameter, "rich_help_panel", None) or group].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records, col_max=26)  # longer flags stand alone


# One option or argument, declared as the help shows it


def option(shown: str, text: str, group: str | None = None, **more: Any) -> Any:
    """Return an option such as `--output -o FILE`: its flags, then the word for its value; and its
    help."""
    words = shown.split()
    flags = [word for word in words if word.startswith("-")]
    metavar = " ".join(words[len(flags) :]) or None
    return typer.Option(..., *flags, metavar=metavar, help=text, rich_help_panel=group, **more)


def argument(shown: str, text: str, **more: Any) -> Any:
    """Return an argument, the word for its value, and its help."""
    return typer.Argument(metavar=shown, help=text, **more)


# Groups of options that several commands take together


def offer(shown: str, text: str, default: Any = None) -> Any:
    """Return the field of a group for an option, shown as by `option`, with its help and its
    default."""
    return field(default=default, metadata={"shown": shown, "help": text})


def with_option_groups(
    **only: Sequence[str],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace each parameter of a command that is a dataclass of options by these options.

    A field with a help, as `offer` and `Order` have them, or with an annotated option is an option;
    a dataclass is a group inside the group. A dataclass may name a `panel` of the help for its
    options.

    only: the options of a group that the command takes, by the name of the parameter or field;
        default: all.
    """

    def expand(command: Callable[..., None]) -> Callable[..., None]:
        declared = signature(command, eval_str=True)
        parameters: list[Parameter] = []
        for name, parameter in declared.parameters.items():
            if is_dataclass(parameter.annotation):
                parameters += _list_parameters(name, parameter.annotation, only)
            else:
                parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

        @wraps(command)
        def run(**options: Any) -> None:
            groups = {
                name: _build_group(name, parameter.annotation, only, options)
                for name, parameter in declared.parameters.items()
                if is_dataclass(parameter.annotation)
            }
            options |= groups
            command(**{name: options[name] for name in declared.parameters})

        run.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return expand


def _list_parameters(name: str, kind: Any, only: Mapping[str, Sequence[str]]) -> list[Parameter]:
    """Return the options of a dataclass of options, and of the dataclasses inside it."""
    types = get_type_hints(kind, include_extras=True)
    parameters: list[Parameter] = []
    for setting in fields(kind):
        declared = types[setting.name]
        if is_dataclass(declared):
            parameters += _list_parameters(setting.name, declared, only)
            continue
        if setting.metadata:
            declared = _declare_option(setting, declared)
        if get_origin(declared) is Annotated and setting.name in only.get(name, types):
            declared.__metadata__[0].rich_help_panel = getattr(kind, "panel", None)
            parameter = Parameter(setting.name, Parameter.KEYWORD_ONLY, annotation=declared)
            if setting.default is not MISSING:
                parameter = parameter.replace(default=setting.default)
            parameters.append(parameter)
    return parameters


def _build_group(
    name: str, kind: Any, only: Mapping[str, Sequence[str]], options: Mapping[str, Any]
) -> Any:
    """Return a dataclass of options; an option that the command does not take has its default."""
    types = get_type_hints(kind)
    groups = {
        inner_name: _build_group(inner_name, inner, only, options)
        for inner_name, inner in types.items()
        if is_dataclass(inner)
    }
    names = {parameter.name for parameter in _list_parameters(name, kind, only)}
    return kind(**groups, **{option: options[option] for option in names & types.keys()})


def list_words(group: Any) -> list[str]:
    """Return the words of a command line for the options of a group that are not the defaults."""
    words: list[str] = []
    for setting in fields(group):
        value = getattr(group, setting.name)
        if setting.metadata and value != setting.default:
            words.append(setting.metadata["shown"].split()[0])
            words += [str(value)] * (value is not True)
    return words


def _declare_option(setting: Field[Any], declared: Any) -> Any:
    """Return the type of an option that is declared by the help of a field, and how it is shown if
    that says so."""
    if "shown" in setting.metadata:
        return Annotated[declared, option(setting.metadata["shown"], setting.metadata["help"])]
    parts = get_args(declared)
    flag = setting.name.replace("_", "-")
    choices = "|".join(word for part in parts for word in get_args(part))  # of a literal
    if choices:
        return Annotated[str | None, option(f"--{flag} {choices}", setting.metadata["help"])]
    words = {bool: f"/--no-{flag}", str: " NAME", int: " N", float: " NUMBER"}
    word = next(word for kind, word in words.items() if kind in (declared, *parts))
    return Annotated[declared, option(f"--{flag}{word}", setting.metadata["help"])]


# Files of entries, and models

Ratings = Annotated[
    Path,
    argument(
        "RATINGS",
        "Entries: csv, tsv, parquet, jsonl (a JSON object in each line), xlsx, MovieLens .dat, .npz, "
        "also .gz, .bz2, .xz, .zip; a store of pack; - for csv on standard input.",
    ),
]
ScaleText = Annotated[
    str | None,
    option(
        "--scale SCALE",
        "Levels (1,2,3,4,5) or interval (0:100) of the values; default: as in the file.",
        READING,
    ),
]
Seed = Annotated[int | None, option("--seed N", "Random seed; default: 0.", TRAINING)]
Device = Annotated[
    str | None,
    option(
        "--device auto|cpu|cuda", "Device to train on; auto uses a GPU if there is one.", TRAINING
    ),
]

# Splits into areas, and ranking metrics

Areas = Annotated[
    bool, option("--areas", "Make some rows and columns new, and treat areas I to IV separately.")
]
NewRows = Annotated[float, option("--new-rows SHARE", "Share of new rows, with --areas.")]
NewColumns = Annotated[float, option("--new-columns SHARE", "Share of new columns, with --areas.")]
ListLength = Annotated[
    int | None, option("-n N", "Number of ranked columns per row, for ranking; default: 10.")
]

# Results

At = Annotated[
    str | None,
    option(
        "--at DATE",
        "Time to predict for, if the model was fitted with times; default: the latest entry's.",
    ),
]
UnknownIds = Annotated[
    str,
    option(
        "--unknown fallback|nan|error",
        "Pairs with an unknown row or column: predict them by the means, leave them empty, or stop.",
    ),
]
FrameFile = Annotated[
    str,
    option(
        "--output -o FILE",
        "File to write: .csv, .tsv, .jsonl or .parquet; - for standard output.",
        OUTPUT,
    ),
]
Digits = Annotated[
    int | None,
    option(
        "--digits N", "Round numbers to N digits after the decimal mark.", OUTPUT, min=0, max=15
    ),
]
Levels = Annotated[bool, option("--levels", "Predict levels of the scale.")]
FrameJson = Annotated[
    bool,
    option(
        "--json", "Print a summary as JSON; with -o -, write JSON lines instead of csv.", OUTPUT
    ),
]
Json = Annotated[bool, option("--json", "Print JSON.", OUTPUT)]
