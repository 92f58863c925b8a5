"""Groups of options: declared once, as the fields of a dataclass, and taken by a command as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from typer.models import ParameterInfo

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
