"""The page of a comparison: best first, honest about chance, and nothing but itself."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.conftest import lines_of
from tests.report.test_compared_models import errors_of, model_of
from tests.report.test_page import Outline, titles

from deepmf.data.splits import AreaSplit
from deepmf.errors import CannotSave
from deepmf.evaluation.ranking_evaluation import evaluate_ranking
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means
from deepmf.report import write_comparison
from deepmf.report.compared_models import ComparedModel, evaluated_models
from deepmf.report.comparison import comparison_page


def test_errors_best_first() -> None:
    models = [model_of("Means", 0.90, 0.92, 0.94), model_of("ALS", 0.80, 0.84, 0.85)]
    page = comparison_page(models, title="Ours", data="On three folds.")
    assert lines_of(page, "Errors, best first") == [
        ["model", "RMSE", "MAE", "RMSE above the first"],
        ["ALS", "0.830 ± 0.026", "0.415 ± 0.013", ""],
        ["Means", "0.920 ± 0.020", "0.460 ± 0.010", "+0.0900 ± 0.0058"],
    ]
    assert lines_of(page, "RMSE on each split")[1] == ["ALS", "0.800", "0.840", "0.850"]
    outline = Outline(page)
    assert outline.text("h1") == "Ours"
    said = outline.text("header")
    assert "ALS has the lowest RMSE, 0.830 ± 0.026 over 3 splits. Means comes next with 0.920 (+10.8" in said
    assert said.count("On three folds.") == 1
    assert "chance" not in said
    assert "ranking (it was not evaluated)" in outline.text("footer")


def test_a_difference_that_may_be_chance_is_told() -> None:
    said = comparison_page([model_of("a", 0.8, 0.9), model_of("b", 0.85, 0.86)])
    assert "which may be chance: the difference is less than twice its standard error" in said
    assert "All models were tested on a single split" in comparison_page([model_of("a", 0.8), model_of("b", 0.9)])
    assert "Caution" not in comparison_page([model_of("a", 0.8)])


def test_areas_where_a_model_does_not_predict_are_empty() -> None:
    page = comparison_page(
        [
            ComparedModel("whole", [errors_of(I=0.9, II=0.5, all=0.6)]),
            ComparedModel("partly", [errors_of(I=0.8, all=0.8)]),
        ]
    )
    head, first, second = lines_of(page, "Errors, best first")
    assert head[:5] == ["model", "RMSE, I", "RMSE, II", "RMSE, all", "MAE, I"]
    assert (first[0], first[2:4]) == ("partly", ["–", "–"])
    assert second[0] == "whole"
    assert "partly has the lowest RMSE in area I" in page
    assert Outline(page).text("figcaption").count(": ") == 3


@pytest.fixture(scope="module")
def fitted(split: AreaSplit) -> list[ComparedModel]:
    models = {"means": Means().fit(split.train), "ALS": ALS(latent_size=2, epochs=2).fit(split.train)}
    return evaluated_models(models, split.test["I"], n=3, relevant_from=4)


def test_rankings_time_memory_and_settings(split: AreaSplit, fitted: list[ComparedModel]) -> None:
    page = comparison_page([replace(each, megabytes=[123.4], seconds=[75.0]) for each in fitted])
    assert titles(Outline(page)) == ["Errors", "Ranking", "Time and memory", "Settings"]
    lines = lines_of(page, "Scores at 3")
    assert [line[0] for line in lines] == [
        "ranked by",
        *sorted(("ALS", "means"), key=lambda n: n != lines[1][0]),
        "popularity",
    ]
    als = next(each for each in fitted if each.name == "ALS").rankings[0]
    written = next(line for line in lines if line[0] == "ALS")
    assert written[3] == f"{als.model.ndcg:.3f} ± {als.model.margins['ndcg']:.3f}"
    assert lines[-1][1].startswith(f"{als.popularity.precision:.3f}")
    assert lines_of(page, "What a fit takes")[1][1:] == ["1 min", "123 MB"]
    assert "latent_size=2" in lines_of(page, "Settings of each model")[1 if lines[1][0] == "ALS" else 2][1]
    assert "Not all models were ranked" not in page


def test_rankings_on_different_entries_are_told(split: AreaSplit, fitted: list[ComparedModel]) -> None:
    other = evaluate_ranking(Means().fit(split.train), split.test["I"], n=3, relevant_from=5)
    page = comparison_page([fitted[0], replace(fitted[1], rankings=[other])])
    assert "Not all models were ranked on the same test entries" in page


def test_names_are_text_and_stay_apart_however_long(fitted: list[ComparedModel]) -> None:
    names = ["<script>alert(1)</script>", "x" * 5000 + "1", "x" * 5000 + "2", "half \ud800"]
    page = comparison_page([replace(fitted[0], name=name) for name in names], title=names[0])
    outline = Outline(page)
    assert not {tag for tag, _ in outline.tags} & {"script", "img"}
    assert outline.text("svg").count("x" * 22) >= 4  # two lines in each of two charts
    assert "x" * 81 not in outline.text("main")


def test_the_file_is_written_whole_or_not_at_all(tmp_path: Path, fitted: list[ComparedModel]) -> None:
    path = tmp_path / "compared.html"
    write_comparison(fitted, path)
    assert path.read_text(encoding="utf-8") == comparison_page(fitted)
    write_comparison([replace(fitted[0], name="half \ud800")], path)
    assert "half ?" in path.read_text(encoding="utf-8")
    with pytest.raises(CannotSave, match="there is no folder"):
        write_comparison(fitted, tmp_path / "none" / "compared.html")
    assert list(tmp_path.iterdir()) == [path]
