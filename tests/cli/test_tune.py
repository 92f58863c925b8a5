"""`deepmf tune`: the library's study, a command that fits the best, one line for what is wrong."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars
import pytest
from tests.cli.conftest import write_entries

from deepmf.data import read_matrix, split_entries
from deepmf.datasets import generate
from deepmf.models.loading import load
from deepmf.tuning import Study

QUICK = ["--model", "als", "--set", "epochs=3", "--set", "latent_size=3"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def summary_of(run: Any, *arguments: object) -> dict[str, Any]:
    outcome = run("tune", *arguments, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    summary: dict[str, Any] = json.loads(outcome.out)
    return summary


@pytest.mark.slow
def test_it_is_the_study_of_the_library(run: Any, folder: Path) -> None:
    summary = summary_of(run, folder / "train.csv", *QUICK, "--trials", 4, "--seed", 3)
    parts = split_entries(
        read_matrix(folder / "train.csv"), train=0.95, validation=0.05, test=0, seed=3
    )
    settings = {"epochs": 3, "latent_size": 3, "seed": 3}
    study = Study("als", parts.train, parts.validation, settings=settings).run(4)
    assert [tried["settings"] for tried in summary["tried"]] == [
        trial.settings for trial in study.trials
    ]
    assert [tried["error"] for tried in summary["tried"]] == [trial.error for trial in study.trials]
    assert (summary["settings"], summary["validation_rmse"]) == (
        study.best.settings,
        study.best.error,
    )
    assert summary["default_rmse"] == study.trials[0].error
    assert (summary["trials"], summary["validation_entries"]) == (4, parts.validation.n_entries)
    assert summary["study"] == "train-als.study"


@pytest.mark.slow
@pytest.mark.parametrize(
    "validation", [[], ["--validation-share", 0.2], ["--validation", "known.csv"]]
)
def test_the_command_fits_the_best(
    run: Any, folder: Path, here: Path, validation: list[Any]
) -> None:
    for name, part in (("my ratings.csv", "train.csv"), ("known.csv", "known.csv")):
        polars.read_csv(folder / part).select(
            polars.col("stars").alias("points"),
            polars.col("film").alias("what"),
            polars.col("user").alias("who"),
        ).write_csv(here / name, separator="|")
    how = [
        "--row",
        "who",
        "--column",
        "what",
        "--value",
        "points",
        "--separator",
        "|",
        "--scale",
        "1,2,3,4,5",
    ]
    tiny = [
        "--set",
        "epochs=2",
        "--set",
        "latent_size=4",
        "--set",
        "block_rows=20",
        "--set",
        "hidden_sizes=8,",
    ]
    tune = [
        "my ratings.csv",
        "--model",
        "dmf",
        *how,
        *validation,
        *tiny,
        "--trials",
        2,
        "--seed",
        2,
        "--device",
        "cpu",
    ]
    summary = summary_of(run, *tune)
    program, *words = shlex.split(summary["command"])
    assert program == "deepmf"
    code, out, _ = run(*words, "--json")
    assert code == 0
    fitted = json.loads(out)
    assert (fitted["validation_rmse"], fitted["file"]) == (
        summary["validation_rmse"],
        "model.safetensors",
    )
    settings = load("model.safetensors").settings.to_dict()
    assert {name: settings[name] for name in summary["settings"]} == summary["settings"] | {
        "hidden_sizes": (8,)
    }


@pytest.mark.slow
def test_the_command_holds_out_the_same_entries(run: Any, here: Path) -> None:
    write_entries(here / "r.csv", generate(60, 40, density=0.3, seed=0).matrix)
    small = [
        "--set",
        "epochs=1",
        "--set",
        "hidden_sizes=8,",
        "--set",
        "views=2",
        "--set",
        "landmarks=4",
    ]
    summary = summary_of(run, "r.csv", *small, "--trials", 1, "--device", "cpu")
    code, out, _ = run(*shlex.split(summary["command"])[1:], "--json")
    assert code == 0
    assert json.loads(out)["validation_rmse"] == summary["validation_rmse"]


@pytest.mark.slow
def test_in_words(run: Any, folder: Path) -> None:
    tune = ["tune", folder / "train.csv", *QUICK]
    code, out, err = run(*tune, "--trials", 2)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("tried 2 settings of als")
    assert "best validation RMSE 0." in lines[0] or "best validation RMSE 1." in lines[0]
    assert lines[0].endswith(" by default")
    assert all(word in out for word in ("setting", "best", "default", "penalty", "count_power"))
    assert "train-als.study" in lines[-2]
    assert lines[-1].startswith(
        f"deepmf fit {folder / 'train.csv'} -o model.safetensors --model als --set epochs=3"
    )


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_tried(
    run: Any, folder: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []

    @contextmanager
    def show_epochs(title: str, *_: object) -> Iterator[list[Any]]:
        def stop(*_: object) -> None:
            if title.startswith("trial 3"):
                raise KeyboardInterrupt

        if title.startswith("trial"):  # not the fit of a trial
            titles.append(title)
        yield [stop]

    tune = ["tune", folder / "train.csv", *QUICK, "--trials", 5, "-o", "kept.study"]
    whole = summary_of(run, *tune[1:-1], "whole.study")
    monkeypatch.setattr("deepmf.training.progress.show_epochs", show_epochs)
    code, out, err = run(*tune, "--json")
    assert code == 130 and "trial 3 of 5;" in err
    assert json.loads(out)["tried"][1]["error"] == whole["tried"][1]["error"]
    assert titles[0] == "trial 1 of 5"
    assert titles[1] == f"trial 2 of 5, best {whole['default_rmse']:.4f}"
    monkeypatch.undo()
    monkeypatch.chdir(here)
    again = summary_of(run, *tune[1:])
    assert [tried["settings"] for tried in again["tried"]] == [
        tried["settings"] for tried in whole["tried"]
    ]
    assert again["validation_rmse"] == whole["validation_rmse"]


def test_ctrl_c_before_anything_was_tried(
    run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Study, "run", interrupted)
    code, out, err = run("tune", folder / "train.csv", *QUICK)
    assert (code, out) == (130, "")
    assert "trial 1 of 30;" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", "0"], "--trials"),
        (["--set", "epoch=1"], "did you mean 'epochs'"),
        (["--model", "means", "--set", "shrinkage=1"], "no setting left to tune"),
        (["--validation-share", "0"], "--validation-share above 0"),
        (["-o", "no/kept.study"], "(there is no folder"),
        (["-o", "ratings.csv"], "would overwrite ratings.csv"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    run: Any, folder: Path, here: Path, arguments: list[str], message: str
) -> None:
    content = (folder / "train.csv").read_bytes()
    (here / "ratings.csv").write_bytes(content)
    assert message in run.fails("tune", "ratings.csv", *arguments)
    assert [path.name for path in here.iterdir()] == ["ratings.csv"]
    assert (here / "ratings.csv").read_bytes() == content


def test_features_are_read_as_by_fit(run: Any, folder: Path, here: Path) -> None:
    matrix = read_matrix(folder / "train.csv")
    for name, labels in (("people.csv", matrix.row_labels), ("films.csv", matrix.column_labels)):
        polars.DataFrame(
            {"key": labels.tolist(), "size": [k % 7 for k in range(labels.size)]}
        ).write_csv(here / name)
    files = [
        "--row-features",
        "people.csv",
        "--column-features",
        "films.csv",
        "--feature-label",
        "key",
    ]
    files += ["--feature-kinds", "size=category"]
    summary = summary_of(run, folder / "train.csv", *QUICK, "--trials", 2, *files)
    assert summary["features"] == {"rows": {"size": "category"}, "columns": {"size": "category"}}
    words = shlex.split(summary["command"])[1:]
    assert run(*words).code == 0
    model = load(here / "model.safetensors")
    assert model.history_.best_error == summary["validation_rmse"]
    assert model.entries_.row_features is not None and model.entries_.column_features is not None
    assert re.search(
        "rankk.*features", run.fails("tune", folder / "train.csv", "--model", "rankk", *files)
    )


def test_a_ranking_metric(run: Any, folder: Path) -> None:
    asked = [
        folder / "train.csv",
        *QUICK,
        "--trials",
        2,
        "--metric",
        "ndcg",
        "--relevant",
        4,
        "-n",
        5,
    ]
    summary = summary_of(run, *asked)
    parts = split_entries(
        read_matrix(folder / "train.csv"), train=0.95, validation=0.05, test=0, seed=0
    )
    settings = {"epochs": 3, "latent_size": 3}
    study = Study(
        "als", parts.train, parts.validation, settings=settings, metric="ndcg", relevant=4, n=5
    ).run(2)
    assert study.best.error is not None
    assert summary["validation_ndcg"] == pytest.approx(1 - study.best.error)
    assert "NDCG" in run("tune", *asked).out
    assert run("tune", folder / "train.csv", *QUICK, "--relevant", 4).code == 2
