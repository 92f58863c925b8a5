"""What a class of settings declares: the dataclass made of it, its rules, and the text that explains it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast, dataclass_transform, get_type_hints

from deepmf.training.setting_rules import RULE, Rule

_Made = TypeVar("_Made")
_Model = TypeVar("_Model")
_ByName = ParamSpec("_ByName")


class DeclaredSetting(NamedTuple):
    """One setting as a class declares it."""

    name: str
    annotation: Any
    default: Any
    rule: Rule
    chosen: bool  # at fit, for the matrix and the machine, where it is not given

    @property
    def type(self) -> str:
        """The type as it is written."""
        return inspect.formatannotation(self.annotation)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings_dataclass(settings: type[_Made]) -> type[_Made]:
    """Make a dataclass of settings, whose docstring and signature explain all of them.

    A field that an ancestor declares may be given another default alone: its rule and its meaning stay.
    """
    summary = inspect.cleandoc(settings.__doc__ or "")
    made: Any = dataclass(frozen=True, kw_only=True)(settings)
    made.__doc__ = "\n\n".join([summary, *map(_explained, declared(made))])
    made.__signature__ = signature_of(made)
    return cast("type[_Made]", made)


def declared(settings: type[Any]) -> list[DeclaredSetting]:
    """Return all settings of a class, those of its ancestors first.

    >>> from deepmf.training.settings import LoopSettings
    >>> [(setting.name, setting.default) for setting in declared(LoopSettings)][:2]
    [('seed', 0), ('epochs', 100)]
    """
    types, chosen = get_type_hints(settings), getattr(settings, "chosen_at_fit", ())
    return [
        DeclaredSetting(
            field.name, types[field.name], field.default, rule_of(settings, field.name), field.name in chosen
        )
        for field in fields(settings)
    ]


def signature_of(settings: type[Any]) -> inspect.Signature:
    """Return the signature of a call that takes all settings of a class by name."""
    by_name = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter(setting.name, by_name, default=setting.default, annotation=setting.annotation)
            for setting in declared(settings)
        ]
    )


def takes_settings(
    settings: Callable[_ByName, object],
) -> Callable[[Callable[Concatenate[_Model, ...], None]], Callable[Concatenate[_Model, _ByName], None]]:
    """Declare that a constructor takes all settings of a class by name: to editors, type checkers and `help`."""

    def with_signature(constructor: Any) -> Any:
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        by_name = signature_of(cast("type[Any]", settings)).parameters.values()
        constructor.__signature__ = inspect.Signature([itself, *by_name])
        return constructor

    return with_signature


def rule_of(settings: type, name: str) -> Rule:
    """Return the rule of a setting from the nearest class that declares one."""
    for part in settings.__mro__:
        field = vars(part).get("__dataclass_fields__", {}).get(name)
        if field is not None and RULE in field.metadata:
            rule: Rule = field.metadata[RULE]
            return rule
    raise TypeError(f"the setting {name!r} of {settings.__name__} has no rule; declare it as by whole() or number()")


def _explained(setting: DeclaredSetting) -> str:
    meaning = textwrap.fill(setting.rule.meaning, 100, initial_indent="    ", subsequent_indent="    ")
    default = "chosen at fit" if setting.chosen else repr(setting.default)
    return f"{setting.name}: {setting.type} = {default} ({setting.rule.allowed})\n{meaning}"
