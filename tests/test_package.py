"""The package's faces, its file tree, its README and the results on its pages agree with the
code."""

import re
import statistics
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools import api_page, file_tree, result_tables

import deepmf
import deepmf.data
import deepmf.datasets
import deepmf.evaluation
import deepmf.matrix
import deepmf.models
import deepmf.serve
import deepmf.sklearn
import deepmf.training
from deepmf import errors, metrics, report

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


FACES = [
    deepmf,
    deepmf.data,
    deepmf.datasets,
    deepmf.evaluation,
    deepmf.matrix,
    deepmf.models,
    deepmf.serve,
    deepmf.sklearn,
    deepmf.training,
    metrics,
]


@pytest.mark.parametrize("module", FACES, ids=lambda module: module.__name__)
def test_no_import_leaks_into_a_public_namespace(module: ModuleType) -> None:
    shown = [name for name in dir(module) if not name.startswith("_")]
    assert shown == sorted(module.__all__)


@pytest.mark.parametrize("module", FACES, ids=lambda module: module.__name__)
def test_every_public_name_is_there(module: ModuleType) -> None:
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        found = getattr(module, name)
        assert not isinstance(found, type | FunctionType) or found.__name__ == name
    with pytest.raises(AttributeError, match="'Nothing'"):
        module.Nothing  # noqa: B018


def test_the_errors_are_all_that_errors_shows() -> None:
    shown = {name for name in dir(errors) if not name.startswith("_")}
    classes = {name for name, found in vars(errors).items() if isinstance(found, type)}
    checks = {"check_choice", "check_count", "check_flag", "check_number"}
    functions = {*checks, "import_optional", "show_value", "suggest_name", "warn"}
    assert (
        shown
        == classes - {"Any", "Integral", "Iterable", "FrameType", "Number", "Real"} | functions
    )


@pytest.mark.parametrize("module", [report], ids=lambda module: module.__name__)
def test_the_rest_of_a_public_package_are_its_own_modules(module: ModuleType) -> None:
    shown = {name for name in dir(module) if not name.startswith("_")}
    assert shown >= set(module.__all__)
    beside = shown - set(module.__all__)
    assert {getattr(module, name).__name__ for name in beside} == {
        f"{module.__name__}.{name}" for name in beside
    }


@pytest.mark.slow
def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys\nimport deepmf, deepmf.data, deepmf.datasets, deepmf.models.registry\n"
        "print({'torch', 'numpy', 'scipy', 'polars'} & set(sys.modules))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "set()"


@pytest.mark.slow
def test_a_small_model_loads_few_modules() -> None:
    code = "import sys, deepmf\ndeepmf.Means\nprint(*sorted(name for name in sys.modules if name.startswith('deepmf')))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    loaded = shown.split()
    assert "deepmf.models.means" in loaded and len(loaded) <= 78, shown
    assert not [name for name in loaded if name.startswith(("deepmf.nn", "deepmf.serve"))]


def test_the_version_stands_in_one_place() -> None:
    """Only the package says it, and the changelog dates it."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    texts = (
        path
        for name in listed.stdout.splitlines()
        if (path := ROOT / name).suffix in (".py", ".toml", ".yaml", ".yml", ".cff")
        and path.is_file()
    )
    pattern = re.compile(rf"version[\W_]*[:=]\W*{re.escape(deepmf.__version__)}\b", re.IGNORECASE)
    said = [path for path in texts if pattern.search(path.read_text(encoding="utf-8"))]
    assert said == [ROOT / "src" / "deepmf" / "__init__.py"]
    newest = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and re.fullmatch(
        rf"{re.escape(deepmf.__version__)} \(\d{{4}}-\d\d-\d\d\)", newest[1]
    )


def test_the_tree_gives_every_source_file_its_role() -> None:
    page = "".join(file_tree.list_files())
    for path in SOURCES:
        role = file_tree.role(path)
        assert role, path
        assert path.name == "__init__.py" or f"- `{path.name}`: {role}\n" in page, path


def test_the_reference_lists_every_public_name() -> None:
    listed = api_page.add_names((ROOT / "docs" / "api.md").read_text(encoding="utf-8"))
    modules = ["deepmf", *(module for topic in api_page.TOPICS.values() for module in topic)]
    names = {name: module for module in reversed(modules) for name in api_page.list_names(module)}
    assert [
        f"{module}.{name}" for name, module in names.items() if f"`~{module}.{name}`" not in listed
    ] == []


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_a_mark_on_all_rows_of_ours_becomes_one_sentence() -> None:
    head = "| method | RMSE |\n| --- | --- |\n"
    rows = "| deepmf, ALS † | .8 |\n| Surprise | .9 |\n"
    note = f"\nMeasured with commit abc. {result_tables.OLDER}\n"
    gathered = result_tables.gather_marks(head + rows + note)
    assert "†" not in gathered
    assert gathered.count(result_tables.ALL_OLDER) == 1
    mixed = head + rows + "| deepmf, Means | .9 |\n" + note
    assert result_tables.gather_marks(mixed) == mixed
    assert result_tables.strip_marks(gathered) == result_tables.strip_marks(head + rows + note)


@pytest.mark.slow
@pytest.mark.parametrize("page", result_tables.PAGES, ids=lambda page: page.name)
def test_pages_show_the_committed_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    rendered = result_tables.render_page(text)
    # marks depend on the git history
    same = result_tables.strip_marks(rendered) == result_tables.strip_marks(text)
    assert same, f"{page.name} and results/ differ; make format writes the tables"


def test_figures_of_sentences_come_from_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(recipe: str, area: str, rmse: float) -> dict[str, object]:
        return {"recipe": recipe, "new_share": 0.2, "area": area, "rmse": rmse, "mae": 0.5}

    own = [
        record("table1/dmf", "I", 0.86),
        record("table1/dmf", "I", 0.88),
        record("table1/als", "I", 0.8),
    ]
    monkeypatch.setattr(result_tables, "table_records", lambda table: own)
    result_tables.figure.cache_clear()
    page = "DMF has <!-- value table1/dmf 20% -->.9999<!-- end --> and ALS <!-- value {} --><!-- end -->."
    for asked, shown in {
        "table1/als 20% mae .1": ".5",
        "table1/dmf 20% I - table1/als 20% I .3": ".070",
        "table1/als 20% below table1/dmf 20%": "8.0 %",
    }.items():
        found = result_tables.render_page(page.format(asked))
        assert found == page.format(asked).replace(".9999", ".8700").replace(
            " --><!--", f" -->{shown}<!--"
        )
    for wrong in ("table1/dmf 10%", "table1/dmf 20% II", "table1/dmf 20% speed"):
        with pytest.raises((AssertionError, statistics.StatisticsError)):
            result_tables.value(wrong)
    result_tables.figure.cache_clear()


def test_rows_older_than_the_code_they_measure_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_tables, "has_changed_since", lambda commit, module: commit == "old")
    new, old = (
        {"recipe": f"t/{commit}", "model": "als", "commit": commit} for commit in ("new", "old")
    )
    assert result_tables.older_recipes([new, old]) == {"t/old"}
    assert (
        result_tables.mark_rows("| a | 1 |\n| a, b | 2 |\n", ["a"]) == "| a † | 1 |\n| a, b | 2 |\n"
    )
    assert "new and old. †" in result_tables.footnote([new, old], older=True)
    assert result_tables.footnote([new, new]) == "Measured with commit new.\n"
    shown = result_tables.block("table", "u1")
    assert "†" not in shown
    monkeypatch.setattr(result_tables, "has_changed_since", lambda commit, module: True)
    for table in ("recommending_areas", "density", "recommending_latency"):
        assert " † |" in result_tables.block("benchmark", table)
    assert "| OrdinalDMF † |" in result_tables.block(
        "table", "u1"
    ) and result_tables.OLDER in result_tables.block("table", "u1")


def test_every_generated_table_states_its_commits() -> None:
    """In one place: the pages of users have neither commits nor daggers."""
    for page in result_tables.PAGES:
        text = page.read_text(encoding="utf-8")
        if page.parent != result_tables.RESULTS:
            assert not re.search(r"†|[Mm]easured with commit", text), page.name
            rows = [line for line in text.splitlines() if line.startswith("| ")]
            n_drawn = sum("<!-- value" in row for row in rows)
            # the front page has a row for each kind of protocol, that of peers one for each library
            assert n_drawn <= (10 if page.name == "README.md" else 7), page.name
            continue
        for found in result_tables.BLOCK.finditer(text):
            if found[3] != "not-run":
                assert re.search(r"[Cc]ommits? \w{7}", found[0]), f"{page.name}: {found[1]}"


def test_ci_and_readme_run_the_same_command() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"
    assert "make test" in (ROOT / "README.md").read_text()


def test_workflows_run_targets_of_make() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflows = "".join(
        path.read_text() for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    )
    assert set(re.findall(r"run: make (\w+)", workflows)) == {"test", "dist", "docs"} & targets


def test_make_check_is_make_test_without_what_is_slow() -> None:
    text = (ROOT / "Makefile").read_text()
    check, test, quick_tests, all_tests = (
        re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)[1]  # type: ignore[index]
        for target in ("check", "test", "quick-tests", "all-tests")
    )
    assert "types all-tests" in test and check == test.replace("all-tests", "quick-tests")
    examples, quick = (
        "pytest --doctest-modules $(TESTS)",
        'pytest -m "not slow" --hypothesis-profile=quick',
    )
    assert quick_tests == all_tests.replace(examples, quick)
    assert "make check" in (ROOT / "CONTRIBUTING.md").read_text()


def list_requirements(requirement: Requirement) -> list[Requirement]:
    """Return what a package of this environment needs, with the extras of a requirement; deepmf as
    its project says."""
    if requirement.name == "deepmf":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = [project["optional-dependencies"][extra] for extra in requirement.extras]
        return [Requirement(line) for line in sum(extras, project["dependencies"])]
    try:
        found = [Requirement(line) for line in metadata.requires(requirement.name) or []]
    except metadata.PackageNotFoundError:
        pytest.skip(f"{requirement.name} is not installed")
    contexts = [{"extra": extra} for extra in requirement.extras or {""}]
    return [one for one in found if one.marker is None or any(map(one.marker.evaluate, contexts))]


def test_constraints_pin_what_is_installed_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines if "==" in line}
    left, needed, of_torch = [Requirement("deepmf[dev]")], dict[str, set[str]](), set[str]()
    while left:
        one = left.pop()
        name = canonicalize_name(one.name)
        if one.extras | {""} <= needed.get(name, set()):
            continue
        needed[name] = needed.get(name, {""}) | one.extras
        left += (below := list_requirements(one))
        of_torch |= (
            {canonicalize_name(each.name) for each in below}
            if name == "torch" or name in of_torch
            else set()
        )
    # Wheels of torch need others on other machines, and so on. An editable wheel is built with
    # editables.
    assert needed.keys() - of_torch - {"deepmf"} <= pinned <= needed.keys() | {"editables"}
