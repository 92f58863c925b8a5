"""The help of a command: options in groups, in lines of 80 columns."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

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
