"""Write examples/first_steps.ipynb from docs/notebook.md: text becomes Markdown cells, Python blocks become code cells.

Run by `make format`; a test checks that both agree, and runs the cells.
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, NOTEBOOK = ROOT / "docs" / "notebook.md", ROOT / "examples" / "first_steps.ipynb"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def make_cells(page: str) -> list[dict[str, Any]]:
    """Return the cells of a page; blocks of output are left out, since the cells give it."""
    cells: list[dict[str, Any]] = []
    at = 0
    for block in _BLOCK.finditer(page):
        _add_cell(cells, "markdown", page[at : block.start()])
        if block[1] == "python":
            _add_cell(cells, "code", block[2])
        at = block.end()
    _add_cell(cells, "markdown", page[at:])
    return cells


def _add_cell(cells: list[dict[str, Any]], kind: str, text: str) -> None:
    if text.strip():
        extra: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
        source = text.strip().splitlines(keepends=True)
        cells.append({"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": source} | extra)


def make_notebook() -> str:
    """Return the notebook of the page as JSON."""
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": make_cells(PAGE.read_text(encoding="utf-8")), "metadata": kernel}
    return json.dumps(content | {"nbformat": 4, "nbformat_minor": 5}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(make_notebook(), encoding="utf-8")
