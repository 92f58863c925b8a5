"""Running trials, keeping them, and going on behind a kill."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepmf.data import split_entries
from deepmf.datasets import generate
from deepmf.errors import BadSetting, CannotSave, TrainingDiverged, UnreadableFile
from deepmf.evaluation.areas import evaluate
from deepmf.experiments.recipe import GENERATED, PROTOCOLS, Recipe, read_table
from deepmf.experiments.run import (
    Record,
    Results,
    Trial,
    _name_differences,
    list_trials,
    run,
    run_trial,
)
from deepmf.experiments.source import digest
from deepmf.models.als import ALS
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.testing import additive


def all_trials() -> list[Trial]:
    return [trial for recipe in read_table("small") for trial in list_trials(recipe)]


_RECORDS: dict[str, list[Record]] = {}


def run_once(trial: Trial) -> list[Record]:
    """Run a trial, or give its records again: those of a trial never change."""
    name = repr(trial)
    if name not in _RECORDS:
        _RECORDS[name] = run_trial(trial)
    return [dict(record) for record in _RECORDS[name]]


def test_trials_are_shares_times_seeds(recipes: Path) -> None:
    means, dmfd = read_table("small")
    assert [(trial.seed, trial.new_share) for trial in list_trials(means)] == [
        (0, 0.2),
        (1, 0.2),
        (0, 0.1),
        (1, 0.1),
    ]
    assert [trial.key["new_share"] for trial in list_trials(dmfd)] == [None, None]
    assert len(list_trials(means, n_splits=1)) == 2


@pytest.mark.slow
def test_a_table_is_run_and_kept(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "out")
    steps = list(run(run_once, all_trials(), results))
    assert [step.n_done for step in steps] == [1, 2, 3, 4, 5, 6] and steps[-1].seconds_left == 0
    records = results.records(read_table("small"))
    assert len(records) == 4 * 4 + 2
    first = records[0]
    assert (first["recipe"], first["seed"], first["new_share"], first["area"]) == (
        "small/means",
        0,
        0.2,
        "I",
    )
    assert (
        first["commit"] == "abc"
        and first["digest"] == digest()
        and first["seconds"] >= 0
        and first["peak_memory_mb"] > 10
        and first["hardware"]
    )
    assert (
        sum(map(sum, first["confusion"]))
        == first["n_entries"]
        == sum(group[2] for group in first["cold_start"])
    )
    last = records[-1]
    assert last["area"] == "I" and last["new_share"] is None
    assert len(last["boundaries"]) == 4 and sum(last["scores"]["counts"]) == last["n_entries"]
    assert [point[0] for point in last["curve"]] == [1, 3, 5]
    assert list(run(run_once, all_trials(), results)) == []  # nothing is run twice


@pytest.mark.slow
def test_a_killed_run_continues_behind_what_is_finished(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "out")
    steps = run(run_once, all_trials(), results)
    next(steps)
    next(steps)
    # killed in the middle of a line
    with (tmp_path / "out" / "small" / "results.jsonl").open("a") as file:
        file.write('{"recipe": "small/me')
    ran: list[dict[str, object]] = []

    def work(trial: Trial) -> list[Record]:
        ran.append(trial.key)
        return run_once(trial)

    list(run(work, all_trials(), Results(tmp_path / "out")))
    assert ran == [trial.key for trial in all_trials()[2:]]
    assert len(results.records(read_table("small"))) == 18
    assert all(
        json.loads(line)
        for line in (tmp_path / "out" / "small" / "results.jsonl").read_text().splitlines()
    )


@pytest.mark.slow
def test_several_at_once_give_the_same(recipes: Path, tmp_path: Path) -> None:
    trials, results = list_trials(read_table("small")[0], n_splits=1), Results(tmp_path)
    list(run(run_trial, trials, results, jobs=2))
    alone = [record for trial in trials for record in run_once(trial)]

    def errors(records: list[Record]) -> list[tuple[object, ...]]:
        return sorted((record["new_share"], record["area"], record["rmse"]) for record in records)

    assert errors(results.records(read_table("small"))) == errors(alone) and len(alone) == 8


def _killed(trial: Trial) -> list[Record]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


@pytest.mark.slow
def test_a_killed_fit_does_not_hang_the_rest(recipes: Path, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="--jobs"):
        list(run(_killed, all_trials()[:2], Results(tmp_path / "out"), jobs=2))


@pytest.mark.slow
@pytest.mark.slow
def test_results_of_another_commit_are_not_mixed(
    recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results(tmp_path / "out")
    list(run(run_once, all_trials()[:1], results))
    monkeypatch.setenv("DEEPMF_COMMIT", "def")
    with pytest.raises(BadSetting, match="abc"):
        list(run(run_once, all_trials(), results))
    assert len(results.records(read_table("small"))) == 4


@pytest.mark.slow
def test_results_of_other_settings_are_not_mixed(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "out")
    list(run(run_once, all_trials(), results))
    path = recipes / "small" / "2-dmf-d.toml"
    path.write_text(path.read_text().replace("latent_size = 4", "latent_size = 5"))
    with pytest.raises(BadSetting, match="latent_size"):
        list(run(run_once, all_trials(), results))


@pytest.mark.slow
def test_a_trial_that_fails_does_not_stop_the_others(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "out")

    def work(trial: Trial) -> list[Record]:
        if trial.seed == 0:
            raise TrainingDiverged("the loss is not a number")
        return run_once(trial)

    message = "^3 of 6"
    with pytest.raises(TrainingDiverged, match=message):
        list(run(work, all_trials(), results))
    assert {record["seed"] for record in results.records(read_table("small"))} == {1}


def test_files_that_are_no_results(recipes: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "results.jsonl").write_text('nonsense\n{"a": 1}\n')
    with pytest.raises(UnreadableFile, match="JSON"):
        Results(tmp_path).records(read_table("small"))
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotSave, match="written"):
        Results(tmp_path / "file").add([{"recipe": "small/means"}])


@pytest.mark.slow
def test_a_table_that_includes_another_shares_its_results(recipes: Path, tmp_path: Path) -> None:
    (recipes / "wide").mkdir()
    (recipes / "wide" / "table.toml").write_text(
        'title = "Wide"\nmetrics = ["mae"]\nincludes = ["small"]\n'
    )
    path = recipes / "wide" / "1-own.toml"
    path.write_text(
        'title = "own"\nmodel = "means"\ndata = "generated"\nprotocol = "entries"\nseeds = [0]\n'
    )
    wide = read_table("wide")
    assert [recipe.name for recipe in wide] == ["small/means", "small/dmf-d", "wide/own"]
    results = Results(tmp_path / "out")
    list(run(run_once, all_trials(), results))
    rest = list(run(run_once, [trial for recipe in wide for trial in list_trials(recipe)], results))
    assert [step.records[0]["recipe"] for step in rest] == ["wide/own"]
    assert len(results.records(wide)) == 18 + 1
    assert {path.parent.name for path in (tmp_path / "out").rglob("results.jsonl")} == {
        "small",
        "wide",
    }


@pytest.mark.parametrize(
    ("changed", "differing"),
    [({}, ""), ({"views": 7}, ""), ({"mask_rate": 0.3}, "mask_rate"), ({"epochs": 3}, "epochs")],
    ids=str,
)
def test_settings_that_a_fit_chose_are_no_other_settings(
    changed: dict[str, Any], differing: str
) -> None:
    given = {"hidden_sizes": [8], "epochs": 2, "linear_size": 0, "device": "cpu"}
    recipe = Recipe(
        name="some/dmf-o",
        title="some",
        model="dmf-o",
        data="some",
        protocol="published",
        settings=given,
    )
    fitted = OrdinalDMF(seed=0, **given).fill_settings(additive(12, 10)).to_dict()
    plain = {
        name: list(value) if isinstance(value, tuple) else value for name, value in fitted.items()
    }
    record = {
        "settings": plain | changed,
        "data": "some",
        "protocol": "published",
        "joined": False,
        "refit": False,
    }
    assert _name_differences(record, Trial(recipe, 0, 0.2)) == differing


MEANS = Recipe(name="small/means", title="means", model="means", data=GENERATED, protocol="areas")


def trial(recipe: Recipe, **changes: Any) -> Trial:
    return Trial(replace(recipe, **changes), seed=0, new_share=0.2)


@pytest.fixture(scope="module", autouse=True)
def commit_trial() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPMF_COMMIT", "abc")
        yield


@pytest.mark.slow
def test_a_method_is_fitted_again_on_validation_entries_too() -> None:
    settings: dict[str, Any] = {"latent_size": 4, "epochs": 12}
    als = replace(
        MEANS, name="small/als", model="als", protocol="entries", settings=settings, refit=True
    )
    (record,) = run_trial(trial(als))
    problem = PROTOCOLS["entries"](GENERATED, seed=0, new_share=0.2)
    chosen = ALS(seed=0, **settings).fit(problem.train, problem.validation)
    assert record["best_epoch"] == chosen.history_.best_epoch is not None
    assert (record["refit"], record["curve"]) == (
        True,
        run_trial(trial(replace(als, refit=False)))[0]["curve"],
    )
    both = split_entries(
        generate(400, 300, density=0.1, seed=0).matrix, train=0.8, validation=0, test=0.2, seed=0
    )
    again = ALS(seed=0, **settings | {"epochs": chosen.history_.best_epoch + 1}).fit(both.train)
    test = problem.test["I"]
    assert record["rmse"] == pytest.approx(evaluate(again, test)[0].rmse, rel=1e-4)
    assert record["rmse"] != pytest.approx(evaluate(chosen, test)[0].rmse, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["areas", "random"])
def test_validation_entries_may_join_the_inputs(protocol: str) -> None:
    apart, joined = (trial(MEANS, protocol=protocol, joined=each) for each in (False, True))
    tested, tested_joined = (
        [record["rmse"] for record in run_trial(each)] for each in (apart, joined)
    )
    assert tested != tested_joined
