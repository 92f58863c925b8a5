"""`deepmf evaluate`: the library's errors, as a table and as JSON."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from deepmf.data import AreaSplit
from deepmf.datasets import generate
from deepmf.evaluation.areas import evaluate
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.models.loading import load


def test_errors_by_area(run: Any, folder: Path, split: AreaSplit) -> None:
    model = folder / "means.safetensors"
    shown = run.json("evaluate", model, folder / "test.csv", "--extend", folder / "new.csv")
    assert [part["area"] for part in shown["areas"]] == ["I", "II", "III", "IV", "all"]
    extended = load(model).extend(split.extension)
    for part in shown["areas"][:4]:
        assert part == pytest.approx(asdict(evaluate(extended, split.test[part["area"]])[0]))
    err, n_entries = run("evaluate", model, folder / "train.csv").err, split.train.n_entries
    assert re.match(f"deepmf: warning: .*{n_entries} of the {n_entries} test entries", err)


@pytest.mark.slow
def test_what_the_fallback_answers_is_measured_apart(
    run: Any, folder: Path, split: AreaSplit, tmp_path: Path
) -> None:
    model, report = folder / "means.safetensors", tmp_path / "report.html"
    n_known, n_entries = (
        split.test["I"].n_entries,
        sum(part.n_entries for part in split.test.values()),
    )
    asked = ["evaluate", model, folder / "test.csv", "--report", report]
    code, out, err = run(*asked)
    assert code == 0
    assert [line.split()[1] for line in out.splitlines() if line.startswith("│")] == [
        "I",
        "unknown",
        "all",
    ]
    assert f"{n_entries - n_known} of {n_entries} pairs" in err and err.count("\n") == 1
    assert (
        f"Of {n_entries} test entries, {n_entries - n_known} have a row or column"
        in report.read_text("utf-8")
    )
    shown = json.loads(run(*asked, "--json").out)
    assert [part["n_entries"] for part in shown["areas"]] == [
        n_known,
        n_entries - n_known,
        n_entries,
    ]
    assert shown["unknown"] == n_entries - n_known
    left_out = json.loads(
        run("evaluate", model, folder / "test.csv", "--unknown", "nan", "--json").out
    )
    assert left_out["unknown"] == n_entries - n_known
    assert [part["area"] for part in left_out["areas"]] == ["I", "all"]


@pytest.mark.slow
def test_a_report_beside_the_table(run: Any, folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    asked = (
        f"evaluate {folder}/means.safetensors {folder}/test.csv --extend {folder}/new.csv"
    ).split()
    plain = run(*asked)
    code, out, err = run(*asked, "--report", report)
    assert (code, err) == (0, "")
    assert out == f"{plain.out}report in {report}\n"
    page = report.read_text(encoding="utf-8")
    assert "<h1><bdi>means.safetensors on test.csv</bdi></h1>" in page
    assert all(f"<dt>Area {area}</dt>" in page for area in ("I", "II", "III", "IV"))
    shown = run.json(*asked, "--report", report)
    assert shown == run.json(*asked) | {"report": str(report)}


@pytest.mark.slow
def test_ranking(run: Any, folder: Path, split: AreaSplit, tmp_path: Path) -> None:
    model, report = folder / "means.safetensors", tmp_path / "report.html"
    asked = ["evaluate", model, folder / "known.csv"]
    assert "ranking" not in run.json(*asked)
    found = evaluate_ranking(load(model), split.test["I"], n=5, relevant=5)
    code, out, err = run(*asked, "--relevant", 5, "-n", 5, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["ranking"] == found.to_dict()
    assert run.json(*asked, "--ranking")["ranking"]["n"] == 10
    out = run(*asked, "--ranking", "--relevant", 5, "-n", 5, "--report", report).out
    assert "first 5 columns" in out
    assert f"{found.model.ndcg:.4f}" in out and f"{found.popularity.ndcg:.4f}" in out
    assert f"{found.model.coverage:.4f}" in out
    assert f"{found.n_rows} rows with {found.n_relevant} relevant test entries" in out
    assert f"{found.n_without} rows without" in out
    assert "relevant: at least 5" in report.read_text("utf-8")


def test_rows_that_were_held_out_whole_are_said_to_be_unknown(run: Any, tmp_path: Path) -> None:
    generate(60, 30, density=0.3, seed=0).matrix.write(tmp_path / "ratings.csv")
    parts = tmp_path / "parts"
    assert run("split", tmp_path / "ratings.csv", "-o", parts, "--by", "rows").code == 0
    model = tmp_path / "model.safetensors"
    assert run("fit", parts / "train.csv", "--model", "means", "-o", model).code == 0
    asked = ["evaluate", model, parts / "test.csv", "--ranking"]
    assert "knows the row" in (errors := run.fails(*asked)) and "--extend" in errors
    assert run(*asked, "--extend", parts / "given.csv").code == 0
