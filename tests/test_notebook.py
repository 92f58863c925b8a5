"""The notebook is the page of the documentation, and its cells run."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("notebook_tool", ROOT / "tools" / "notebook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_the_page(tool: Any) -> None:
    assert tool.NOTEBOOK.read_text(encoding="utf-8") == tool.make_notebook(), "run python tools/notebook.py"
    kinds = [cell["cell_type"] for cell in json.loads(tool.NOTEBOOK.read_text(encoding="utf-8"))["cells"]]
    assert kinds.count("code") >= 5 and kinds[0] == "markdown"


def test_it_is_valid(tool: Any) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbformat.validate(nbformat.read(tool.NOTEBOOK, as_version=4))


@pytest.mark.slow
def test_its_cells_run(tool: Any) -> None:
    names: dict[str, Any] = {}
    for cell in json.loads(tool.NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["best"].height == 5
    assert names["best"]["column_name"].to_list() == [
        film.removeprefix("The ") for film in names["best"]["column"].to_list()
    ]
