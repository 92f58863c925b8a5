"""Studies: the best is the best, pauses change nothing, hopeless trials end early, foreign files are refused."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models import described

from deepmf.data.splits import Split, split_entries
from deepmf.data.synthetic.generator import generate
from deepmf.errors import BadFeatures, BadSetting, CannotSave, MissingDependency, TrainingDiverged, UnreadableFile
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.training.history import EpochRecord, History
from deepmf.tuning.space import Choice, Factors, Range
from deepmf.tuning.study import Study, Tried

ALS_SETTINGS = {"epochs": 5, "latent_size": 3}


@pytest.fixture(scope="module")
def split() -> Split:
    return split_entries(generate(40, 30, density=0.4, seed=0).matrix, seed=0)


def same(tried: list[Tried]) -> list[Any]:
    """Return all but the time of trials."""
    return [(trial.settings, trial.error, trial.ended) for trial in tried]


def test_errors_are_those_of_the_model_and_the_best_is_the_smallest(split: Split) -> None:
    study = Study("means", split.train, split.validation, settings={"seed": 1}).run(8)
    rows, columns, values = split.validation.entries()
    for trial in study.tried:
        model = Means(**trial.settings).fit(split.train)
        assert trial.error == rmse_error(model.predict(rows, columns), values)
    assert study.tried[0].settings == {"seed": 1, "shrinkage": 5.0}  # the defaults come first
    assert study.best.error == min(trial.error for trial in study.tried if trial.error is not None)
    assert len({trial.settings["shrinkage"] for trial in study.tried}) == 8


def test_the_first_trial_is_what_is_chosen_for_the_matrix(split: Split) -> None:
    given = {"epochs": 1, "device": "cpu", "effort": "quick"}
    study = Study("dmf-o", split.train, split.validation, settings=given).run(1)
    model = OrdinalDMF(**given).fit(split.train, split.validation)
    assert {name: study.tried[0].settings[name] for name in study.space} == {
        name: getattr(model.settings, name) for name in study.space
    }
    assert study.tried[0].error == model.history_.best_error


@pytest.mark.slow
def test_a_model_learned_in_epochs_counts_with_its_best_epoch(split: Split) -> None:
    study = Study("als", split.train, split.validation, settings=ALS_SETTINGS).run(2)
    for trial in study.tried:
        assert trial.settings.items() >= ALS_SETTINGS.items()
        assert trial.error == ALS(**trial.settings).fit(split.train, split.validation).history_.best_error


@pytest.mark.slow
def test_the_search_finds_what_predicts_best() -> None:
    """Every row has one value, so the less its mean is shrunk, the better."""
    rows = np.repeat([[1.0], [5.0]] * 15, 30, axis=1)
    parts = split_entries(ObservedMatrix.from_array(rows), train=0.5, validation=0.5, test=0.0, seed=0)
    study = Study("means", parts.train, parts.validation).run(25)
    errors = {trial.settings["shrinkage"]: trial.error for trial in study.tried}
    assert study.best.settings["shrinkage"] == min(errors) < 0.3
    assert study.importances() == {"shrinkage": 1.0}


def interrupting(after: int) -> Callable[[EpochRecord, History], None]:
    """Return a callback that presses Ctrl-C after so many epochs in all."""
    seen = 0

    def press(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == after:
            raise KeyboardInterrupt

    return press


@pytest.mark.slow
def test_a_pause_changes_nothing(split: Split, tmp_path: Path) -> None:
    def study(file: str) -> Study:
        return Study("als", split.train, split.validation, settings=ALS_SETTINGS, file=tmp_path / file)

    whole = study("whole").run(12)
    first = study("paused")
    with pytest.raises(KeyboardInterrupt):
        first.run(12, callbacks=[interrupting(after=2)])  # in the first trial
    assert first.tried == []
    with pytest.raises(KeyboardInterrupt):
        study("paused").run(12, callbacks=[interrupting(after=18)])
    paused = study("paused")
    assert 3 <= len(paused.tried) < 12
    assert same(paused.run(12).tried) == same(whole.tried)
    assert same(study("paused").tried) == same(whole.tried)
    assert same(study("paused").run(3).tried) == same(whole.tried)  # nothing is left to do
    assert sorted(path.name for path in tmp_path.iterdir()) == ["paused", "whole"]


def test_another_seed_tries_other_settings(split: Split) -> None:
    first, other = (
        Study("means", split.train, split.validation, settings={"seed": seed}).run(3).tried for seed in (0, 1)
    )
    assert first[0].settings["shrinkage"] == other[0].settings["shrinkage"]
    assert first[1].settings["shrinkage"] != other[1].settings["shrinkage"]


def test_a_hopeless_trial_ends_early(split: Split) -> None:
    """Every weight of the penalty is good but one, which leaves nothing to learn."""
    space = {"penalty": Choice((0.3, 0.31, 0.32, 0.33, 0.34, 1e9))}
    epochs: list[int] = []

    def count(record: EpochRecord, _: History) -> None:
        epochs.append(record.epoch)

    settings = {"epochs": 10, "latent_size": 3, "effect_penalty": 1e9}
    study = Study("als", split.train, split.validation, settings=settings, space=space).run(20, callbacks=[count])
    pruned = [trial for trial in study.tried if trial.ended == "pruned"]
    hopeless = [trial for trial in study.tried if trial.settings["penalty"] == 1e9]
    assert hopeless[-1] in pruned
    assert all(trial.error is None for trial in pruned)
    assert len(epochs) < 10 * 20
    assert study.best.settings["penalty"] < 1


def test_a_trial_that_diverges_is_one_of_them(split: Split) -> None:
    tiny = {"hidden_sizes": (8,), "latent_size": 4, "epochs": 2, "dropout": 0.1, "device": "cpu"}
    space = {"learning_rate": Choice((1e-2, 1e38))}
    study = Study("dmf", split.train, split.validation, settings=tiny, space=space).run(6)
    assert {trial.ended for trial in study.tried} == {"completed", "diverged"}
    assert study.best.settings["learning_rate"] == 1e-2
    space = {"learning_rate": Choice((1e38,))}
    study = Study("dmf", split.train, split.validation, settings=tiny, space=space).run(1)
    with pytest.raises(TrainingDiverged, match="none of 1 trials was completed"):
        study.best  # noqa: B018


def test_values_can_be_typed(split: Split) -> None:
    study = Study("als", split.train, split.validation, settings={"epochs": 1}, space={"penalty": Factors(0.1, 3.0)})
    for trial in study.run(4).tried:
        assert float(f"{trial.settings['penalty']:.4g}") == trial.settings["penalty"]


def test_importances_need_some_trials(split: Split) -> None:
    study = Study("als", split.train, split.validation, settings=ALS_SETTINGS | {"epochs": 1})
    assert study.run(9).importances() == {}
    importances = study.run(14).importances()
    assert set(importances) == {"penalty", "count_power", "effect_penalty"}
    assert sum(importances.values()) == pytest.approx(1.0)
    assert list(importances.values()) == sorted(importances.values(), reverse=True)
    same_error = Study("means", split.train, split.validation, space={"shrinkage": Choice((5.0,))})
    assert same_error.run(12).importances() == {}


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ({"model": "means", "settings": {}}, "model"),
        ({"settings": ALS_SETTINGS | {"epochs": 6}}, "epochs"),
        ({"settings": ALS_SETTINGS | {"seed": 2}}, "seed"),
        ({"space": {"penalty": Factors(0.1, 1.0)}}, "search space"),
        ({"swap": True}, "training entries, validation entries"),
    ],
)
def test_the_study_of_another_search_is_refused(
    split: Split, tmp_path: Path, change: dict[str, Any], differing: str
) -> None:
    given = {"model": "als", "settings": ALS_SETTINGS, "space": None} | change
    parts = (split.validation, split.train) if given.pop("swap", False) else (split.train, split.validation)
    file = tmp_path / "als.study"
    Study("als", split.train, split.validation, settings=ALS_SETTINGS, file=file)
    before = file.read_bytes()
    with pytest.raises(BadSetting, match=rf"als.study is the study of another search \(its .*{differing}"):
        Study(given.pop("model"), *parts, file=file, **given)
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", ["user,film,stars\n", '{"study_name":"mine"}\n', "{}\n", "1\n"])
def test_a_foreign_file_is_refused_and_left_alone(split: Split, tmp_path: Path, content: str) -> None:
    file = tmp_path / "ratings.csv"
    file.write_text(content)
    with pytest.raises(UnreadableFile, match="ratings.csv is not a study of deepmf"):
        Study("means", split.train, split.validation, file=file)
    assert file.read_text() == content


def test_a_place_that_holds_no_file(split: Split, tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "no" / "s.study"):
        with pytest.raises(CannotSave, match="cannot hold a study"):
            Study("means", split.train, split.validation, file=file)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "alsx"}, "there is no model 'alsx'"),
        ({"settings": {"epoch": 3}}, "there is no setting 'epoch'; did you mean 'epochs'?"),
        ({"model": "means", "settings": {"shrinkage": 1}}, "nothing is left to tune of 'means': all of shrinkage"),
        ({"space": {}}, "nothing is left to tune of 'als': it has no search space"),
        ({"space": {"penaltly": Range(0.0, 1.0)}}, "'als' has no setting 'penaltly' to tune; did you mean 'penalty'?"),
    ],
)
def test_what_cannot_be_tuned(split: Split, given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message.replace("?", r"\?")):
        Study(given.pop("model", "als"), split.train, split.validation, **given)


def test_a_study_needs_validation_entries(split: Split) -> None:
    empty = split_entries(split.train, train=1.0, validation=0.0, test=0.0).validation
    with pytest.raises(BadSetting, match="settings are compared on validation entries; there are none"):
        Study("means", split.train, empty)


def test_without_optuna(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependency, match=r"tuning needs optuna: pip install 'deepmf\[tune\]'"):
        Study("means", split.train, split.validation)


def test_a_study_with_features(tmp_path: Path) -> None:
    parts = split_entries(described.matrix(), train=0.8, validation=0.2, test=0, seed=0)
    features = {"row_features": described.row_features(), "column_features": described.column_features()}
    plain = Study("als", parts.train, parts.validation, settings=ALS_SETTINGS)
    assert "feature_penalty" not in plain.space
    file = tmp_path / "s.study"
    study = Study("als", parts.train, parts.validation, **features, settings=ALS_SETTINGS, file=file).run(3)
    assert "feature_penalty" in study.space
    model = ALS(**study.best.settings).fit(parts.train, parts.validation, **features)
    assert model.history_.best_error == study.best.error
    assert study.tried[0].error < (plain.run(1).tried[0].error or 0)  # type: ignore[operator]
    again = Study("als", parts.train, parts.validation, **features, settings=ALS_SETTINGS, file=file)
    assert len(again.tried) == 3
    others = features | {"row_features": described.row_features().take(np.arange(20))}
    with pytest.raises(BadSetting, match=r"is the study of another search \(its row features differ\)"):
        Study("als", parts.train, parts.validation, **others, settings=ALS_SETTINGS, file=file)
    with pytest.raises(BadSetting, match="another search"):
        Study("als", parts.train, parts.validation, settings=ALS_SETTINGS, file=file)


def test_features_that_no_study_could_read(split: Split) -> None:
    features = Features.from_columns(split.train.row_labels, {"age": list(range(split.train.shape[0]))})
    with pytest.raises(BadFeatures, match="'rankk' reads entries alone, no features; tune it without"):
        Study("rankk", split.train, split.validation, row_features=features)
    with pytest.raises(BadFeatures, match="row_features must be Features"):
        Study("als", split.train, split.validation, row_features={"age": 3})  # type: ignore[arg-type]
