"""What the package says about itself is true."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from tools import file_tree, result_tables

import deepmf
import deepmf.sklearn
from deepmf import errors, metrics, report
from deepmf.data import datasets, synthetic

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_all_tells_the_truth() -> None:
    assert len(set(deepmf.__all__)) == len(deepmf.__all__)
    assert set(deepmf.__all__) == deepmf._HOMES.keys()
    for name in deepmf.__all__:
        assert getattr(deepmf, name).__module__ == deepmf._HOMES[name]


@pytest.mark.parametrize("module", [deepmf, deepmf.sklearn, metrics], ids=lambda module: module.__name__)
def test_no_import_leaks_into_a_public_namespace(module: ModuleType) -> None:
    shown = [name for name in dir(module) if not name.startswith("_")]
    assert shown == sorted(module.__all__)


def test_the_errors_are_all_that_errors_shows() -> None:
    shown = {name for name in dir(errors) if not name.startswith("_")}
    assert shown == {name for name in vars(errors) if isinstance(vars(errors)[name], type)} - {"Iterable"} | {
        "nearest_name"
    }


@pytest.mark.parametrize("module", [datasets, report, synthetic], ids=lambda module: module.__name__)
def test_the_rest_of_a_public_package_are_its_own_modules(module: ModuleType) -> None:
    shown = {name for name in dir(module) if not name.startswith("_")}
    assert shown >= set(module.__all__)
    beside = shown - set(module.__all__)
    assert {getattr(module, name).__name__ for name in beside} == {f"{module.__name__}.{name}" for name in beside}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        deepmf.Nothing  # noqa: B018


@pytest.mark.slow
def test_import_loads_nothing_heavy() -> None:
    settings = sorted(name for name in deepmf.__all__ if name.endswith("Settings"))
    for imported in ("import deepmf", f"from deepmf import {', '.join(settings)}"):
        code = f"import sys\n{imported}\nprint({{'torch', 'numpy', 'scipy', 'polars'}} & set(sys.modules))"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert shown.strip() == "set()"


def test_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == deepmf.__version__


def test_the_tree_gives_every_source_file_its_role() -> None:
    page = file_tree.PAGE.read_text(encoding="utf-8")
    assert file_tree.TREE.search(page), f"{file_tree.PAGE.name} has no file tree"
    assert file_tree.written(page) == page, "the file tree is not up to date; make format writes it"


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.fixture(scope="module")
def tree() -> str:
    return file_tree.tree()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_every_source_file_says_what_it_is_for(path: Path, tree: str) -> None:
    said = file_tree.role(path)
    assert said and "\n" not in said
    assert path.name == "__init__.py" or said in tree


@pytest.mark.parametrize("page", result_tables.PAGES, ids=lambda page: page.name)
def test_pages_show_the_committed_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert result_tables.BLOCK.search(text), f"{page.name} shows no results"
    assert result_tables.written(text) == text, f"{page.name} and results/ differ; make format writes the tables"


def test_ci_and_readme_run_the_same_command() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"
    assert "make test" in (ROOT / "README.md").read_text()


def test_make_check_is_make_test_without_what_is_slow() -> None:
    text = (ROOT / "Makefile").read_text()
    check, test = (
        re.search(rf"^{target}: .*\n((?:\t.*\n)+)", text, re.MULTILINE)[1].splitlines()  # type: ignore[index]
        for target in ("check", "test")
    )
    assert check[:-1] == test[:-1]
    assert test[-1] == "\t$(BIN)/pytest --numprocesses=auto --dist=loadfile"
    quick = '$(BIN)/pytest -m "not slow" --hypothesis-profile=quick'
    assert check[-1] == test[-1].replace("$(BIN)/pytest", quick)
    assert "make check" in (ROOT / "CONTRIBUTING.md").read_text()


def test_constraints_pin_every_dependency() -> None:
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.match(r"[\w-]+", requirement)[0].lower() for requirement in needed}  # type: ignore[index]
    assert names - {"deepmf"} <= pinned
