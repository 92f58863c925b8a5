"""Running trials, keeping them, and going on behind a kill."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from deepmf.errors import BadSetting, CannotSave, TrainingDiverged, UnreadableFile
from deepmf.experiments.recipe import read_table
from deepmf.experiments.results import Results
from deepmf.experiments.run import run
from deepmf.experiments.source_digest import digest
from deepmf.experiments.trial import Record, Trial, run_choice, run_trial, trials_of

pytestmark = pytest.mark.slow


def all_trials() -> list[Trial]:
    return [trial for recipe in read_table("small") for trial in trials_of(recipe)]


def test_trials_are_shares_times_seeds(recipes: Path) -> None:
    means, dmfd = read_table("small")
    assert [(trial.seed, trial.new_share) for trial in trials_of(means)] == [(0, 0.2), (1, 0.2), (0, 0.1), (1, 0.1)]
    assert [trial.key["new_share"] for trial in trials_of(dmfd)] == [None, None]
    assert len(trials_of(means, n_splits=1)) == 2


def test_a_table_is_run_and_kept(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "out")
    steps = list(run(run_trial, all_trials(), results))
    assert [step.n_done for step in steps] == [1, 2, 3, 4, 5, 6] and steps[-1].seconds_left == 0
    records = results.records(read_table("small"))
    assert len(records) == 4 * 4 + 2
    first = records[0]
    assert (first["recipe"], first["seed"], first["new_share"], first["area"]) == ("small/means", 0, 0.2, "I")
    assert (
        first["commit"] == "abc"
        and first["digest"] == digest()
        and first["seconds"] >= 0
        and first["peak_memory_mb"] > 10
        and first["hardware"]
    )
    assert sum(map(sum, first["confusion"])) == first["n_entries"] == sum(group[2] for group in first["cold_start"])
    last = records[-1]
    assert last["area"] == "I" and last["new_share"] is None
    assert len(last["boundaries"]) == 4 and sum(last["scores"]["counts"]) == last["n_entries"]
    assert [point[0] for point in last["curve"]] == [1, 3, 5]
    assert list(run(run_trial, all_trials(), results)) == []  # nothing is run twice


def test_a_killed_run_continues_behind_what_is_finished(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "out")
    steps = run(run_trial, all_trials(), results)
    next(steps)
    next(steps)
    with (tmp_path / "out" / "small" / "results.jsonl").open("a") as file:  # killed in the middle of a line
        file.write('{"recipe": "small/me')
    ran: list[dict[str, object]] = []

    def work(trial: Trial) -> list[Record]:
        ran.append(trial.key)
        return run_trial(trial)

    list(run(work, all_trials(), Results(tmp_path / "out")))
    assert ran == [trial.key for trial in all_trials()[2:]]
    assert len(results.records(read_table("small"))) == 18
    assert all(json.loads(line) for line in (tmp_path / "out" / "small" / "results.jsonl").read_text().splitlines())


@pytest.mark.slow
def test_several_at_once_give_the_same(recipes: Path, tmp_path: Path) -> None:
    one, many = Results(tmp_path / "one"), Results(tmp_path / "many")
    trials = trials_of(read_table("small")[0], n_splits=1)
    list(run(run_trial, trials, one))
    list(run(run_trial, trials, many, jobs=2))

    def errors(results: Results) -> list[tuple[object, ...]]:
        return sorted(
            (record["new_share"], record["area"], record["rmse"]) for record in results.records(read_table("small"))
        )

    assert errors(one) == errors(many) and len(errors(one)) == 8


def _killed(trial: Trial) -> list[Record]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


@pytest.mark.slow
def test_a_killed_fit_does_not_hang_the_rest(recipes: Path, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="a fit was killed, perhaps out of memory; fewer --jobs than 2 need less"):
        list(run(_killed, all_trials()[:2], Results(tmp_path / "out"), jobs=2))


def test_how_validation_entries_are_used_is_a_setting_too(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "out")
    list(run(run_trial, all_trials()[-1:], results))
    path = recipes / "small" / "2-dmf-d.toml"
    path.write_text(path.read_text().replace("joined = true", "joined = false"))
    with pytest.raises(BadSetting, match=r"with other settings \(joined\)"):
        list(run(run_trial, all_trials(), results))


def test_results_of_another_digest_are_not_mixed_whatever_their_commit(
    recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results(tmp_path)
    trials = all_trials()[:1]
    list(run(run_trial, trials, results))
    assert results.missing(trials) == []
    monkeypatch.setattr("deepmf.experiments.source_digest.digest", lambda: "f" * 64)
    with pytest.raises(BadSetting, match=f"holds results of digest {digest()}; this is f+, and the two are not mixed"):
        results.missing(trials)


def test_results_without_a_digest_go_by_their_commit(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path)
    trials = all_trials()[:1]
    records = run_trial(trials[0])
    results.add([{key: value for key, value in record.items() if key != "digest"} for record in records])
    assert results.missing(trials) == []


def test_a_split_that_is_there_twice_is_not_averaged(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path)
    records = run_trial(all_trials()[0])
    results.add(records)
    results.add(records[:1])
    with pytest.raises(UnreadableFile, match=r"lines 1 and 5 of .* are both small/means, split 0, area I; delete one"):
        results.records(read_table("small"))


def test_old_records_tell_the_errors_of_one_set_of_levels(tmp_path: Path) -> None:
    """They kept the squared error of rounded levels, all counts of these, and the absolute error of medians."""
    old: Record = {"recipe": "table2/dmf-o", "seed": 0, "new_share": None, "area": "I", "commit": "abc", "settings": {}}
    old |= {"data": "ml-1m", "level_rmse": 1.0, "level_mae": 0.4, "calibration_error": 0.01}
    counts = np.zeros((5, 5), dtype=int)
    counts[0, 0], counts[1, 3], counts[4, 3] = 5, 2, 3  # two errors of two levels, three of one
    results = Results(tmp_path)
    new = old | {"seed": 1, "median_rmse": 1.1, "median_mae": 0.3}
    results.add([old | {"confusion": counts.tolist()}, new])
    before = (tmp_path / "table2" / "results.jsonl").read_text()
    first, second = results.records(read_table("table2"))
    assert (first["level_rmse"], first["level_mae"], first["median_mae"]) == (1.0, 0.7, 0.4)
    assert "median_rmse" not in first
    assert (second["level_mae"], second["median_rmse"], second["median_mae"]) == (0.4, 1.1, 0.3)
    assert (tmp_path / "table2" / "results.jsonl").read_text() == before


def test_results_of_another_commit_are_not_mixed(
    recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results(tmp_path / "out")
    list(run(run_trial, all_trials()[:1], results))
    monkeypatch.setenv("DEEPMF_COMMIT", "def")
    with pytest.raises(BadSetting, match="holds results of commit abc; this is def, .* delete the folder to start"):
        list(run(run_trial, all_trials(), results))
    assert len(results.records(read_table("small"))) == 4


def test_results_of_other_settings_are_not_mixed(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "out")
    list(run(run_trial, all_trials(), results))
    path = recipes / "small" / "2-dmf-d.toml"
    path.write_text(path.read_text().replace("latent_size = 4", "latent_size = 5"))
    with pytest.raises(BadSetting, match=r"holds small/dmf-d with other settings \(latent_size\): delete the folder"):
        list(run(run_trial, all_trials(), results))


def test_choosing_looks_at_validation_entries_only(recipes: Path) -> None:
    (trial, *_) = all_trials()
    on_test, on_validation = run_trial(trial), run_choice(trial)
    assert [record["area"] for record in on_validation] == ["I", "II", "III", "IV"]
    for test, validation in zip(on_test, on_validation, strict=True):
        assert test["n_entries"] / validation["n_entries"] == pytest.approx(4, rel=0.1)


def test_a_trial_that_fails_does_not_stop_the_others(recipes: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "out")

    def work(trial: Trial) -> list[Record]:
        if trial.seed == 0:
            raise TrainingDiverged("the loss is not a number")
        return run_trial(trial)

    message = "^3 of 6 fits failed, first small/means, split 0: the loss is not a number$"
    with pytest.raises(TrainingDiverged, match=message):
        list(run(work, all_trials(), results))
    assert {record["seed"] for record in results.records(read_table("small"))} == {1}


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True])
def test_bad_numbers_of_jobs(recipes: Path, tmp_path: Path, jobs: int) -> None:
    with pytest.raises(BadSetting, match="jobs must be a whole number of at least 1; got"):
        list(run(run_trial, all_trials(), Results(tmp_path), jobs=jobs))


def test_files_that_are_no_results(recipes: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "results.jsonl").write_text('nonsense\n{"a": 1}\n')
    with pytest.raises(UnreadableFile, match="line 1 of .*results.jsonl is not JSON"):
        Results(tmp_path).records(read_table("small"))
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotSave, match="could not be written"):
        Results(tmp_path / "file").add([{"recipe": "small/means"}])


def test_a_table_that_includes_another_shares_its_results(recipes: Path, tmp_path: Path) -> None:
    (recipes / "wide").mkdir()
    (recipes / "wide" / "table.toml").write_text('title = "Wide"\nmetrics = ["mae"]\nincludes = ["small"]\n')
    path = recipes / "wide" / "1-own.toml"
    path.write_text('title = "own"\nmodel = "means"\ndata = "generated"\nprotocol = "entries"\nseeds = [0]\n')
    wide = read_table("wide")
    assert [recipe.name for recipe in wide] == ["small/means", "small/dmf-d", "wide/own"]
    results = Results(tmp_path / "out")
    list(run(run_trial, all_trials(), results))
    rest = list(run(run_trial, [trial for recipe in wide for trial in trials_of(recipe)], results))
    assert [step.records[0]["recipe"] for step in rest] == ["wide/own"]
    assert len(results.records(wide)) == 18 + 1
    assert {path.parent.name for path in (tmp_path / "out").rglob("results.jsonl")} == {"small", "wide"}
