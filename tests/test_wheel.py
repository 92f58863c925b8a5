"""The wheel holds all that the package needs, and what it needs beside is declared for those who
install it."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

import deepmf

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "deepmf"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"dev", "docs"}
NAMED_OTHERWISE = {"mlflow": ["mlflow-skinny"], "huggingface_hub": ["huggingface-hub"]}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built as pip builds it."""
    backend = pytest.importorskip("hatchling.build", reason="hatchling comes with the extra dev")
    folder, here = tmp_path_factory.mktemp("wheel"), Path.cwd()
    os.chdir(ROOT)
    try:
        return zipfile.ZipFile(folder / backend.build_wheel(str(folder)))
    finally:
        os.chdir(here)


def test_it_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    files = [
        path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    wanted = {path.relative_to(PACKAGE.parent).as_posix() for path in files}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == wanted
    assert "deepmf/py.typed" in held
    for folder, suffix in (("experiments/recipes", ".toml"), ("report/templates", ".html")):
        assert any(
            name.startswith(f"deepmf/{folder}/") and name.endswith(suffix) for name in held
        ), folder


def test_it_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    about = {
        name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name
    }
    told = wheel.read(about["METADATA"]).decode()
    assert f"Version: {deepmf.__version__}\n" in told
    assert set(re.findall(r"^Provides-Extra: (.*)$", told, re.MULTILINE)) == EXTRAS.keys()
    assert "deepmf = deepmf.__main__:main" in wheel.read(about["entry_points.txt"]).decode()
    assert "licenses/LICENSE" in about


@pytest.mark.slow
def test_a_clean_environment_finds_its_files_and_runs_the_demo_without_a_network(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    pip = pytest.importorskip("pip", reason="this environment has no pip")
    assert pip and wheel.filename is not None
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*install, wheel.filename], check=True)
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    place = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    # What the package needs comes from this environment; the package itself does not.
    (place / "needed.pth").write_text(
        "\n".join(path for path in sys.path if "site-packages" in path)
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = (
        "import deepmf; print(deepmf.__file__)\n"
        "from deepmf.experiments.recipe import read_table; assert read_table('table1')\n"
        "from deepmf.cli import demo; demo.RATINGS |= {'n_rows': 120, 'n_columns': 80}\n"
        "demo.SETTINGS |= {'hidden_sizes': (16,), 'latent_size': 8, 'epochs': 4, 'linear_iterations': 4}\n"
        "from deepmf.cli.app import main; main(['demo'])\n"
    )
    shown = subprocess.run(
        [python, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert Path(shown.stdout.splitlines()[0]).is_relative_to(tmp_path)
    assert (tmp_path / "deepmf-demo.html").is_file()


def test_the_description_is_fit_for_an_index(wheel: zipfile.ZipFile) -> None:
    check = pytest.importorskip("twine.commands.check", reason="twine is not installed")
    assert wheel.filename is not None
    assert not check.check([wheel.filename], strict=True)


SAYING = [*PACKAGE.rglob("*.py"), ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


def test_messages_and_pages_name_extras_that_exist() -> None:
    named = {
        extra
        for path in SAYING
        for listed in re.findall(r"(?:deepmf|\.)\[([\w, ]+)\]'", path.read_text(encoding="utf-8"))
        for extra in listed.replace(" ", "").split(",")
    }
    assert {"sklearn", "serve"} <= named
    assert named <= EXTRAS.keys()


def imported_by(path: Path) -> set[str]:
    """The packages that a module imports, also inside functions; not those that only types need."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    found = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in found} - {"deepmf"} - sys.stdlib_module_names


def names_of(requirements: list[str]) -> set[str]:
    named = (re.match(r"[\w-]+", requirement)[0] for requirement in requirements)  # type: ignore[index]
    return {name.lower().replace("_", "-") for name in named}


@pytest.mark.slow
def test_nothing_but_tests_needs_what_developers_install() -> None:
    declared = names_of(PROJECT["dependencies"])
    for extra in EXTRAS.keys() - FOR_DEVELOPERS:
        declared |= names_of(EXTRAS[extra])
    homes = packages_distributions()
    # which is for tests of models
    for path in set(PACKAGE.rglob("*.py")) - {PACKAGE / "testing.py"}:
        for package in imported_by(path):
            assert (
                names_of(homes.get(package, NAMED_OTHERWISE.get(package, [package]))) & declared
            ), f"{path} imports {package}"


def test_the_project_has_one_address() -> None:
    """Files that cannot read `pyproject.toml` agree with it."""
    address = PROJECT["urls"]["Source"]
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    links = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml").read_text())[
        "contact_links"
    ]
    assert recipe["about"]["homepage"] == citation["repository-code"] == address
    assert {link["url"] for link in links} == {
        PROJECT["urls"]["Documentation"],
        f"{address}/security",
    }
    assert all(
        url.startswith(address) for name, url in PROJECT["urls"].items() if name != "Documentation"
    )


def test_the_recipe_of_conda_needs_what_the_wheel_needs() -> None:
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text())
    named = {"torch": "pytorch", "matplotlib": "matplotlib-base"}  # as conda-forge names them
    ours = {tuple(each.split(">=")) for each in PROJECT["dependencies"]}
    theirs = {tuple(each.split(" >=")) for each in recipe["requirements"]["run"]}
    needed = {(named.get(name, name), least) for name, least in ours}
    assert theirs == needed | {("python", PROJECT["requires-python"].removeprefix(">="))}
