"""The notebooks are the pages of the gallery, which the tests of pages run, and they show what came
out."""

import json
from pathlib import Path

import pytest
from tools import notebook


@pytest.mark.parametrize("page", notebook.PAGES, ids=lambda page: page.stem)
def test_it_is_the_page_and_shows_a_picture(page: Path) -> None:
    stored = json.loads(notebook.notebook_of(page).read_text(encoding="utf-8"))["cells"]
    made = notebook.make_cells(page.read_text(encoding="utf-8"))
    kinds_and_texts = [
        [(cell["cell_type"], cell["source"]) for cell in cells] for cells in (stored, made)
    ]
    assert kinds_and_texts[0] == kinds_and_texts[1], "run python tools/notebook.py"
    outputs = [output for cell in stored for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("page", notebook.PAGES, ids=lambda page: page.stem)
def test_the_built_page_shows_its_pictures(page: Path) -> None:
    text, stored = (
        page.read_text(encoding="utf-8"),
        notebook.notebook_of(page).read_text(encoding="utf-8"),
    )
    shown = notebook.draw_pictures(text, stored)
    assert shown.count("](data:image/png;base64,") == stored.count('"image/png": ') > 0
    assert shown.index("](data:image/png") > text.index("plt.subplots")


def test_the_gallery_is_complete() -> None:
    names = ["drug_targets", "films", "genotypes", "sensors", "service", "shop", "survey"]
    assert [page.stem for page in notebook.PAGES] == names


@pytest.mark.parametrize("page", notebook.PAGES, ids=lambda page: page.stem)
def test_it_is_valid(page: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbformat.validate(nbformat.read(notebook.notebook_of(page), as_version=4))
