"""Write the notebooks in examples/ from the pages in docs/gallery/: text becomes Markdown cells,
Python code cells.

`python tools/notebook.py` also runs the cells, and keeps what they print, show and draw. A test
checks that notebooks and pages agree.
"""

import ast
import base64
import io
import json
import os
import re
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "gallery").glob("*.md"))

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook_of(page: Path) -> Path:
    """Return where the notebook of a page is kept."""
    return ROOT / "examples" / f"{page.stem}.ipynb"


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
        cells.append(
            {"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": source}
            | extra
        )


def draw_pictures(page: str, notebook: str) -> str:
    """Return a page with the pictures of its notebook, each below the code that draws it."""
    code = iter([cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"])

    def add(block: re.Match[str]) -> str:
        outputs = next(code)["outputs"] if block[1] == "python" else []
        drawn = [
            output["data"]["image/png"]
            for output in outputs
            if "image/png" in output.get("data", {})
        ]
        return block[0] + "".join(
            f"\n![What the code draws](data:image/png;base64,{each})\n" for each in drawn
        )

    return _BLOCK.sub(add, page)


def run_cells(cells: list[dict[str, Any]]) -> None:
    """Run the code cells in one namespace, and fill in their outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for count, cell in enumerate((cell for cell in cells if cell["cell_type"] == "code"), 1):
        tree = ast.parse("".join(cell["source"]))
        end = tree.body[-1]
        last = ast.Expression(end.value) if isinstance(end, ast.Expr) else None
        tree.body = tree.body[:-1] if last else tree.body
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, "cell", "exec"), names)
            shown = None if last is None else eval(compile(last, "cell", "eval"), names)
        cell["execution_count"] = count
        if printed.getvalue():
            cell["outputs"].append(
                {"output_type": "stream", "name": "stdout", "text": printed.getvalue()}
            )
        if shown is not None:
            data = {"text/plain": repr(shown)}
            if hasattr(shown, "_repr_html_"):
                data["text/html"] = shown._repr_html_()
            _add_output(cell, "execute_result", data, execution_count=count)
        for picture in _draw_figures():
            _add_output(cell, "display_data", {"image/png": picture})


def _add_output(cell: dict[str, Any], kind: str, data: dict[str, str], **extra: int) -> None:
    cell["outputs"].append({"output_type": kind, "data": data, "metadata": {}} | extra)


def _draw_figures() -> list[str]:
    """Return the open figures as pictures, and close them."""
    import matplotlib.pyplot as plt

    pictures = []
    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(file, format="png", dpi=90)
        pictures.append(base64.b64encode(file.getvalue()).decode())
    plt.close("all")
    return pictures


def write_notebook(page: Path) -> None:
    """Write the notebook of a page, run."""
    cells = make_cells(page.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        run_cells(cells)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    notebook_of(page).write_text(
        json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    for page in PAGES:
        write_notebook(page)
