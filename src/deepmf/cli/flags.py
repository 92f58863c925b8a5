"""Commands whose help shows flags as flags: without the type of a value that they do not take."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


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
