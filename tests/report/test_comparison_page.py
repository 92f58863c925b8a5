"""The page of a comparison: every model, its errors and spreads, nothing unescaped, and why
something is missing."""

import re
from pathlib import Path

import pytest

from deepmf.datasets import generate
from deepmf.evaluation.comparison import ComparedModel, Comparison, compare
from deepmf.report.comparison_page import render_comparison, write_comparison

MATRIX = generate(30, 20, density=0.4, seed=0).matrix


def test_every_number_of_the_table_is_on_the_page(tmp_path: Path) -> None:
    found = compare({"<b>means</b>": "means", "als": "als"}, MATRIX, folds=2)
    write_comparison(found, tmp_path / "page.html", title="Two & models")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>Two &amp; models</title>" in page
    assert "<b>means" not in page and "&lt;b&gt;means&lt;/b&gt;" in page
    for model in found.models:
        for metric in ("rmse", "mae", "level_rmse", "level_mae"):
            assert f"{model.mean(metric):.4f} ± {model.spread(metric):.4f}" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert page.count("<svg") == 2  # RMSE, MAE


@pytest.mark.slow
def test_areas_and_methods_that_predict_in_one_alone() -> None:
    page = render_comparison(compare(["means", "rankk"], MATRIX, folds=2, areas=True))
    assert all(f"RMSE, area {area}" in page for area in ("I", "II", "III", "IV"))
    assert "new row, new column" in page and "<td>–</td>" in page


def test_what_failed_is_a_caution() -> None:
    plain = compare(["means"], MATRIX, folds=2)
    failed = ComparedModel("als", "ALS", {}, (), failure="it diverged")
    shown = render_comparison(Comparison((*plain.models, failed), plan=plain.plan, data=plain.data))
    assert re.search("als .*it diverged", shown)
    nothing = render_comparison(Comparison((failed,), plan=plain.plan, data=plain.data))
    assert "errors (no model" in nothing


@pytest.mark.slow
def test_rankings_of_models_and_of_popularity() -> None:
    found = compare(["means", "als"], MATRIX, folds=2, metric="ndcg", n=5, relevant=4)
    page = render_comparison(found)
    for model in found.models:
        for metric in (
            "ndcg",
            "recall",
            "precision",
            "mrr",
            "map",
            "hit_rate",
            "coverage",
            "novelty",
        ):
            assert f"{model.mean(metric):.4f} ± {model.spread(metric):.4f}" in page
    assert f"{found.popularity('ndcg').mean():.4f} ± " in page
    assert "NDCG@5" in page and "relevant: at least 4" in page
    assert page.count("<svg") == 3  # NDCG, RMSE, MAE
