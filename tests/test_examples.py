"""Every example runs, is short, and prints figures that beat the mean baseline."""

import ast
import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
COMPARED = re.compile(r"(.*): means ([\d.]+), (?:DMF|DMF-D|ALS|DMFImputer) ([\d.]+)$", re.MULTILINE)


def test_there_are_examples() -> None:
    names = {"genotypes", "sensors", "film_features"}
    assert names <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.slow
def test_example_runs_and_beats_the_means(
    path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    compared = COMPARED.findall(capsys.readouterr().out)
    assert compared, "an example prints the means' figure and the model's"
    for what, means, model in compared:
        ratio = float(model) / float(means)
        assert ratio > 1.08 if what.startswith(("share", "accuracy")) else ratio < 0.93, (
            f"{what}: means {means}, model {model}"
        )
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_says_what_it_shows(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= 80
