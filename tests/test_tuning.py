"""Studies: the best settings are found, a pause changes nothing, and a damaged or foreign file is
refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models import described

from deepmf.data import Split, split_entries
from deepmf.datasets import generate
from deepmf.errors import (
    BadFeatures,
    BadSetting,
    CannotSave,
    MissingDependency,
    TrainingDiverged,
    UnreadableFile,
)
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.registry import MODELS, model_class
from deepmf.training.history import EpochRecord, History
from deepmf.tuning import Choice, LogRange, Range, Space, Study, Trial, search_space


@pytest.fixture(scope="module")
def split() -> Split:
    return split_entries(generate(20, 15, density=0.4, seed=0).matrix, seed=0)


@pytest.fixture(scope="module")
def written(split: Split, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a study of three trials."""
    file = tmp_path_factory.mktemp("study") / "means.study"
    Study("means", split.train, split.validation, file=file).run(3)
    return file.read_bytes()


def test_an_incomplete_last_line_is_cut_off(split: Split, written: bytes, tmp_path: Path) -> None:
    file = tmp_path / "means.study"
    file.write_bytes(written[:-20])
    study = Study("means", split.train, split.validation, file=file)
    assert len(study.trials) == 2
    study.run(4)
    assert len(Study("means", split.train, split.validation, file=file).run(5).trials) == 5


def test_damage_is_refused(split: Split, written: bytes, tmp_path: Path) -> None:
    file = tmp_path / "means.study"
    lines = written.splitlines(keepends=True)
    damaged = b"".join([*lines[:4], lines[4].replace(b'"op_code":', b'"op_code"; '), *lines[5:]])
    file.write_bytes(damaged)
    with pytest.raises(UnreadableFile, match="damaged"):
        Study("means", split.train, split.validation, file=file)
    assert file.read_bytes() == damaged


def test_a_full_disk_is_told_as_such_and_costs_one_trial(
    split: Split, written: bytes, tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    file = tmp_path / "means.study"
    file.write_bytes(written)
    study = Study("means", split.train, split.validation, file=file)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # in the middle of the next line
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(written) + 50, hard))
    try:
        with pytest.raises(CannotSave, match="large"):
            study.run(4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(Study("means", split.train, split.validation, file=file).run(4).trials) == 4


SPACES: dict[str, Space] = {model: search_space(model) for model in MODELS}

every_model = pytest.mark.parametrize("model", SPACES)


def test_every_model_has_a_space() -> None:
    assert all(SPACES.values())


@every_model
def test_the_model_takes_every_end_and_option(model: str) -> None:
    for name, dimension in SPACES[model].items():
        values = (
            dimension.options if isinstance(dimension, Choice) else (dimension.low, dimension.high)
        )
        for value in values:
            assert getattr(model_class(model)(**{name: value}).settings, name) == value


@every_model
def test_the_default_is_inside_and_is_not_rounded_away(model: str) -> None:
    for name, dimension in SPACES[model].items():
        default = getattr(model_class(model)().settings, name)
        assert dimension.include(default) == dimension, name
        assert dimension.decode(dimension.encode(default)) == default, name


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"latent_size": LogRange(0, 9)}, "latent_size"),
        ({"count_power": LogRange(0.0, 1.0)}, "count_power"),
        ({"penalty": Range(1.0, 0.5)}, "penalty"),
        ({"count_power": Range(0.0, 2.0)}, "count_power"),
        ({"latent_size": Range(1.0, 9.0)}, "latent_size"),
    ],
)
def test_spaces_that_cannot_be_searched(
    larger_split: Split, space: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadSetting, match=message):
        Study("als", larger_split.train, larger_split.validation, space=space)


def test_what_a_dimension_holds() -> None:
    assert Range(1, 5).is_whole and not Range(1.0, 5).is_whole
    assert [Range(1, 5).include(value) for value in (1, 5, 0)] == [
        Range(1, 5),
        Range(1, 5),
        Range(0, 5),
    ]
    assert LogRange(0.1, 5.0).include(6.0) == LogRange(0.1, 6.0)
    assert Choice(((1,), (2, 3))).include((2, 3)) == Choice(((1,), (2, 3)))
    assert Choice((1, 2)).include(3) == Choice((1, 2, 3))


def test_what_features_weigh_is_searched_where_it_is_a_setting() -> None:
    assert search_space("als", with_features=True) == {
        **search_space("als"),
        "feature_penalty": LogRange(0.3, 300.0),
    }
    assert search_space("dmf-o", with_features=True) == search_space("dmf-o")
    assert "feature_penalty" in search_space("means", with_features=True)


ALS_SETTINGS = {"epochs": 5, "latent_size": 3}


@pytest.fixture(scope="module")
def larger_split() -> Split:
    return split_entries(generate(40, 30, density=0.4, seed=0).matrix, seed=0)


def same(trials: list[Trial]) -> list[Any]:
    """Return all but the time of trials."""
    return [(trial.settings, trial.error, trial.ended) for trial in trials]


def test_errors_are_those_of_the_model_and_the_best_is_the_smallest(larger_split: Split) -> None:
    study = Study("means", larger_split.train, larger_split.validation, settings={"seed": 1}).run(8)
    rows, columns, values = larger_split.validation.entries()
    for trial in study.trials:
        model = Means(**trial.settings).fit(larger_split.train)
        assert trial.error == rmse_error(model.predict(rows, columns), values)
    assert study.trials[0].settings == {"seed": 1, "shrinkage": 5.0}  # the defaults come first
    assert study.best.error == min(trial.error for trial in study.trials if trial.error is not None)
    assert len({trial.settings["shrinkage"] for trial in study.trials}) == 8


def test_the_first_trial_is_what_is_chosen_for_the_matrix(larger_split: Split) -> None:
    given: dict[str, Any] = {
        "epochs": 1,
        "device": "cpu",
        "effort": "quick",
        "linear_iterations": 4,
    }
    study = Study("dmf-o", larger_split.train, larger_split.validation, settings=given).run(1)
    model = OrdinalDMF(**given).fit(larger_split.train, larger_split.validation)
    assert {name: study.trials[0].settings[name] for name in study.space} == {
        name: getattr(model.settings, name) for name in study.space
    }
    assert study.trials[0].error == model.history_.best_error


@pytest.mark.slow
def test_the_search_finds_what_predicts_best() -> None:
    """Every row has one value, so the less its mean is shrunk, the better."""
    rows = np.repeat([[1.0], [5.0]] * 15, 30, axis=1)
    parts = split_entries(
        ObservedMatrix.from_array(rows), train=0.5, validation=0.5, test=0.0, seed=0
    )
    study = Study("means", parts.train, parts.validation).run(25)
    errors = {trial.settings["shrinkage"]: trial.error for trial in study.trials}
    assert study.best.settings["shrinkage"] == min(errors) < 0.3


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
def test_a_pause_changes_nothing(larger_split: Split, tmp_path: Path) -> None:
    def study(file: str) -> Study:
        return Study(
            "als",
            larger_split.train,
            larger_split.validation,
            settings=ALS_SETTINGS,
            file=tmp_path / file,
        )

    whole = study("whole").run(12)
    first = study("paused")
    with pytest.raises(KeyboardInterrupt):
        first.run(12, callbacks=[interrupting(after=2)])  # in the first trial
    assert first.trials == []
    with pytest.raises(KeyboardInterrupt):
        study("paused").run(12, callbacks=[interrupting(after=18)])
    paused = study("paused")
    assert 3 <= len(paused.trials) < 12
    assert same(paused.run(12).trials) == same(whole.trials)
    assert same(study("paused").trials) == same(whole.trials)
    assert same(study("paused").run(3).trials) == same(whole.trials)  # nothing is left to do
    assert sorted(path.name for path in tmp_path.iterdir()) == ["paused", "whole"]


def test_another_seed_tries_other_settings(larger_split: Split) -> None:
    first, other = (
        Study("means", larger_split.train, larger_split.validation, settings={"seed": seed})
        .run(3)
        .trials
        for seed in (0, 1)
    )
    assert first[0].settings["shrinkage"] == other[0].settings["shrinkage"]
    assert first[1].settings["shrinkage"] != other[1].settings["shrinkage"]


@pytest.mark.slow
def test_a_hopeless_trial_ends_early(larger_split: Split) -> None:
    """Every weight of the penalty is good but one, which leaves nothing to learn."""
    space = {"penalty": Choice((0.3, 0.31, 0.32, 0.33, 0.34, 1e9))}
    epochs: list[int] = []

    def count(record: EpochRecord, _: History) -> None:
        epochs.append(record.epoch)

    settings = {"epochs": 10, "latent_size": 3, "effect_penalty": 1e9}
    study = Study(
        "als", larger_split.train, larger_split.validation, settings=settings, space=space
    ).run(20, callbacks=[count])
    pruned = [trial for trial in study.trials if trial.ended == "pruned"]
    hopeless = [trial for trial in study.trials if trial.settings["penalty"] == 1e9]
    assert hopeless[-1] in pruned
    assert all(trial.error is None for trial in pruned)
    assert len(epochs) < 10 * 20
    assert study.best.settings["penalty"] < 1


def test_a_trial_that_diverges_is_one_of_them(larger_split: Split) -> None:
    tiny = {"hidden_sizes": (8,), "latent_size": 4, "epochs": 2, "dropout": 0.1, "device": "cpu"}
    space = {"learning_rate": Choice((1e-2, 1e38))}
    study = Study(
        "dmf", larger_split.train, larger_split.validation, settings=tiny, space=space
    ).run(6)
    assert {trial.ended for trial in study.trials} == {"completed", "diverged"}
    assert study.best.settings["learning_rate"] == 1e-2
    space = {"learning_rate": Choice((1e38,))}
    study = Study(
        "dmf", larger_split.train, larger_split.validation, settings=tiny, space=space
    ).run(1)
    with pytest.raises(TrainingDiverged, match="none"):
        study.best  # noqa: B018


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ({"model": "means", "settings": {}}, "model"),
        ({"settings": ALS_SETTINGS | {"epochs": 6}}, "epochs"),
        ({"settings": ALS_SETTINGS | {"seed": 2}}, "seed"),
        ({"space": {"penalty": LogRange(0.1, 1.0)}}, "search space"),
        ({"swap": True}, "training entries, validation entries"),
    ],
)
def test_the_study_of_another_search_is_refused(
    larger_split: Split, tmp_path: Path, change: dict[str, Any], differing: str
) -> None:
    given = {"model": "als", "settings": ALS_SETTINGS, "space": None} | change
    parts = (
        (larger_split.validation, larger_split.train)
        if given.pop("swap", False)
        else (larger_split.train, larger_split.validation)
    )
    file = tmp_path / "als.study"
    Study("als", larger_split.train, larger_split.validation, settings=ALS_SETTINGS, file=file)
    before = file.read_bytes()
    with pytest.raises(BadSetting, match=differing):
        Study(given.pop("model"), *parts, file=file, **given)
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", ["user,film,stars\n", '{"study_name":"mine"}\n', "{}\n", "1\n"])
def test_a_foreign_file_is_refused_and_left_alone(
    larger_split: Split, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "ratings.csv"
    file.write_text(content)
    with pytest.raises(UnreadableFile, match="study"):
        Study("means", larger_split.train, larger_split.validation, file=file)
    assert file.read_text() == content


def test_a_place_that_holds_no_file(larger_split: Split, tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "no" / "s.study"):
        with pytest.raises(CannotSave, match="study"):
            Study("means", larger_split.train, larger_split.validation, file=file)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "alsx"}, "there is no model 'alsx'"),
        ({"settings": {"epoch": 3}}, "did you mean 'epochs'"),
        ({"model": "means", "settings": {"shrinkage": 1}}, "'means' has no setting left"),
        ({"space": {}}, "'als' has no setting left"),
        ({"space": {"penaltly": Range(0.0, 1.0)}}, "did you mean 'penalty'"),
    ],
)
def test_what_cannot_be_tuned(larger_split: Split, given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message.replace("?", r"\?")):
        Study(given.pop("model", "als"), larger_split.train, larger_split.validation, **given)


def test_a_study_needs_validation_entries(larger_split: Split) -> None:
    empty = split_entries(larger_split.train, train=1.0, validation=0.0, test=0.0).validation
    with pytest.raises(BadSetting, match="validation"):
        Study("means", larger_split.train, empty)


def test_interactions_leave_nothing_to_tune() -> None:
    clicks = ObservedMatrix.from_interactions([0, 0, 1], [0, 1, 1])
    with pytest.raises(BadSetting, match="interactions"):
        Study("means", clicks, clicks, metric="ndcg")


def test_without_optuna(larger_split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependency, match=r"deepmf\[tune\]"):
        Study("means", larger_split.train, larger_split.validation)


def test_a_study_with_features(tmp_path: Path) -> None:
    parts = split_entries(described.matrix(), train=0.8, validation=0.2, test=0, seed=0)
    features = {
        "row_features": described.row_features(),
        "column_features": described.column_features(),
    }
    plain = Study("als", parts.train, parts.validation, settings=ALS_SETTINGS)
    assert "feature_penalty" not in plain.space
    file = tmp_path / "s.study"
    study = Study(
        "als", parts.train, parts.validation, **features, settings=ALS_SETTINGS, file=file
    ).run(3)
    assert "feature_penalty" in study.space
    model = ALS(**study.best.settings).fit(parts.train, parts.validation, **features)
    assert model.history_.best_error == study.best.error
    assert study.trials[0].error < (plain.run(1).trials[0].error or 0)  # type: ignore[operator]
    again = Study(
        "als", parts.train, parts.validation, **features, settings=ALS_SETTINGS, file=file
    )
    assert len(again.trials) == 3
    others = features | {"row_features": described.row_features().take(np.arange(20))}
    with pytest.raises(BadSetting, match="features"):
        Study("als", parts.train, parts.validation, **others, settings=ALS_SETTINGS, file=file)
    with pytest.raises(BadSetting, match="another"):
        Study("als", parts.train, parts.validation, settings=ALS_SETTINGS, file=file)


def test_features_that_no_study_could_read(larger_split: Split) -> None:
    features = Features.from_columns(
        larger_split.train.row_labels, {"age": list(range(larger_split.train.shape[0]))}
    )
    with pytest.raises(BadFeatures, match="'rankk'"):
        Study("rankk", larger_split.train, larger_split.validation, row_features=features)
    with pytest.raises(BadFeatures, match="^row_features"):
        Study("als", larger_split.train, larger_split.validation, row_features={"age": 3})  # type: ignore[arg-type]


def test_settings_are_searched_for_a_ranking_metric(tmp_path: Path) -> None:
    split = split_entries(generate(40, 30, density=0.4, seed=0).matrix, seed=0)
    given = {"settings": {"epochs": 2, "latent_size": 3}, "metric": "ndcg", "n": 5, "relevant": 4}
    study = Study("als", split.train, split.validation, **given, file=tmp_path / "a.study").run(3)
    for trial in study.trials:
        model = ALS(**trial.settings).fit(split.train, split.validation, progress=False)
        score = evaluate_ranking(model, split.validation, n=5, relevant=4).model.ndcg
        assert trial.error == pytest.approx(1 - score)
    assert study.best.error == min(trial.error for trial in study.trials if trial.error is not None)
    with pytest.raises(BadSetting, match="metric"):  # the file belongs to another search
        Study(
            "als",
            split.train,
            split.validation,
            settings=given["settings"],
            file=tmp_path / "a.study",
        )
    with pytest.raises(BadSetting, match="ndcg"):
        Study("als", split.train, split.validation, metric="ncdg")
    with pytest.raises(BadSetting, match="relevant"):
        Study("als", split.train, split.validation, metric="ndcg", relevant=9)
