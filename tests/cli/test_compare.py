"""`deepmf compare`: the library's comparison as a table, as JSON and as a page."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepmf.data import read_matrix
from deepmf.evaluation.comparison import compare
from deepmf.models.als import ALS


@pytest.mark.slow
def test_it_is_the_comparison_of_the_library(run: Any, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = ["compare", folder / "train.csv", "--models", "means,als", "--folds", 3, "--seed", 2]
    asked += ["--set", "als.latent_size=2", "-o", page]
    found = run.json(*asked)
    wanted = compare(
        ["means", ALS(latent_size=2, seed=2)], read_matrix(folder / "train.csv"), folds=3, seed=2
    )
    assert [model["rmse"]["I"] for model in found["models"]] == [
        model.mean() for model in wanted.models
    ]
    assert (found["best"], found["page"]) == (wanted.best, str(page))
    assert "Models on train.csv" in page.read_text(encoding="utf-8")
    code, out, err = run(*asked)
    assert (code, err) == (0, "")
    assert wanted.verdict in out and f"page in {page}" in out
    assert f"{wanted.models[1].mean():.4f} ± {wanted.models[1].spread():.4f}" in out


@pytest.mark.slow
def test_two_models_stand_side_by_side_for_a_person(run: Any, folder: Path, tmp_path: Path) -> None:
    matrix = read_matrix(folder / "train.csv")
    row, page = matrix.row_labels[3], tmp_path / "page.html"
    asked = [
        *f"compare {folder}/train.csv --models means,als --folds 2 --person".split(),
        row,
        "-n",
        "5",
    ]
    found = run.json(*asked, "--rank-by", "value", "-o", page)
    wanted = ALS(seed=0).fit(matrix).recommend(row, n=5, rank_by="value")
    places = {line["place_after"]: line["column"] for line in found["lists"] if line["place_after"]}
    assert (
        found["person"] == row
        and [places[place] for place in range(1, 6)] == wanted.labels.tolist()
    )
    shown = page.read_text(encoding="utf-8")
    assert f"What would change for {row}" in shown and "als instead of means" in shown
    code, out, _ = run(*asked)
    assert code == 0 and f"What would change for {row}" in out
    for wrong in (["--person", "nobody"], ["--person", row, "--models", "als"]):
        code, _, err = run("compare", folder / "train.csv", "--folds", 2, *wrong)
        assert code == 2 and err.count("\n") == 1


def test_what_fails_is_told_and_settings_go_to_all_that_have_them(run: Any, folder: Path) -> None:
    settings = ["dmf.hidden_sizes=4,", "dmf.learning_rate=1e30", "epochs=3"]
    wild = [word for setting in settings for word in ("--set", setting)] + ["--device", "cpu"]
    asked = ["compare", folder / "train.csv", "--areas", "--folds", 2, *wild, "--models"]
    code, out, _ = run(*asked, "means,als,dmf")
    assert code == 0 and "dmf failed: " in out and "best: als" in out
    assert "RMSE, IV" in out and "2 random splits" in out
    found = json.loads(run(*asked, "means,dmf", "--json").out)["models"]
    assert [model["settings"].get("epochs") for model in found] == [None, 3]
    assert run(*asked, "dmf").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "als,als"], "got 'als,als'"),
        (["--models", "als", "--set", "dmf.epochs=3"], "'dmf' is not compared"),
        (["--models", "als", "--set", "dropout=.5"], "--set dropout: none of als has"),
        (["--models", "als", "--set", "als.epoch=3"], "did you mean 'epochs'"),
        (["--models", "means", "-o", "{folder}/train.csv"], "would overwrite"),
    ],
)
def test_bad_input_is_one_line(run: Any, folder: Path, arguments: list[str], message: str) -> None:
    given = [argument.format(folder=folder) for argument in arguments]
    assert message in run.fails("compare", folder / "train.csv", *given)


@pytest.mark.slow
def test_models_are_ordered_by_a_ranking_metric(run: Any, folder: Path) -> None:
    asked = ["compare", folder / "train.csv", "--models", "means,als", "--folds", 2]
    options = ["--metric", "ndcg", "--relevant", 4, "-n", 5]
    found = run.json(*asked, *options)
    wanted = compare(
        ["means", "als"], read_matrix(folder / "train.csv"), folds=2, metric="ndcg", n=5, relevant=4
    )
    assert [model["ndcg"]["I"] for model in found["models"]] == [
        model.mean("ndcg") for model in wanted.models
    ]
    out = run(*asked, *options).out
    assert "NDCG@5" in out and "popularity" in out and wanted.verdict in out
    assert run(*asked, "--relevant", 4).code == 2
    assert run(*asked, "--metric", "luck").code == 2
