"""The options that several commands share, so that one name means one thing everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_FILES = "Files"

Row = Annotated[
    str | None, typer.Option("--row", metavar="NAME", help="Name or position of the row ids.", rich_help_panel=_FILES)
]
Column = Annotated[
    str | None,
    typer.Option("--column", metavar="NAME", help="Name or position of the column ids.", rich_help_panel=_FILES),
]
Value = Annotated[
    str | None, typer.Option("--value", metavar="NAME", help="Name or position of the values.", rich_help_panel=_FILES)
]
Separator = Annotated[
    str | None,
    typer.Option("--separator", metavar="TEXT", help="What separates fields; recognised.", rich_help_panel=_FILES),
]
Duplicates = Annotated[
    str,
    typer.Option(
        "--duplicates",
        metavar="error|last|mean",
        help="What becomes of a pair that occurs twice.",
        rich_help_panel=_FILES,
    ),
]
Extend = Annotated[
    list[Path] | None,
    typer.Option(
        "--extend", metavar="FILE", help="Entries of new rows and columns, to cover without training; repeatable."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
