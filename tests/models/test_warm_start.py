"""Warm fits: what was learned is carried over by label, by half the epochs; what does not fit is refused."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.lies import small_model

from deepmf.data import split_entries
from deepmf.errors import BadEntries, BadModelFile, BadSetting, DeepMFWarning, NotFitted, TrainingInterrupted
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.fitting import Fitting
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.registry import MODELS
from deepmf.models.warm_start import WarmStart
from deepmf.testing import additive
from deepmf.training.history import EpochRecord, History

OLD = additive(14, 12)
# What is learned is looked at without views of places, without refinement, and read by label.
PLAIN: dict[str, dict[str, Any]] = {
    "dmf-o": {"views": 1, "row_penalty": 1e12, "column_penalty": 1e12, "linear_size": 0},
}
every_model = pytest.mark.parametrize("name", [name for name in MODELS if name != "means"])


def model_of(name: str, **settings: Any) -> Model:
    return small_model(name, **PLAIN.get(name, {}) | settings)


def changed() -> ObservedMatrix:
    """The old matrix in another order, without a row and a column, with two rows and a column more."""
    rows, columns, values = OLD.entries()
    kept = (rows != "row 2") & (columns != "column 5")
    more = ["new", "new", "row 1", "newer"], ["column 1", "column 2", "fresh", "fresh"], [5, 1, 3, 4]
    parts = [np.concatenate(pair) for pair in zip((rows[kept], columns[kept], values[kept]), more, strict=True)]
    labels = [np.unique(part)[::-1] for part in parts[:2]]
    return ObservedMatrix.from_entries(*parts, OLD.scale, row_labels=labels[0], column_labels=labels[1])


def begun(model: Model, start: Model, train: ObservedMatrix) -> Any:
    """The task of a warm fit before its first epoch."""
    task = model._make_task(EntryStore.of(train), None)
    model._begin_from(task, WarmStart(start.entries_, start.predictor_, train))
    return task


@every_model
def test_a_warm_fit_begins_with_the_old_predictions_in_whatever_order_labels_come(name: str) -> None:
    old = model_of(name).fit(OLD)
    turned = OLD.take(np.arange(14)[::-1], np.random.default_rng(0).permutation(12))
    model, store = model_of(name), EntryStore.of(turned)
    predictor = model._make_predictor(begun(model, old, turned), store, Fitting())
    found = predictor.score_block(np.arange(14), np.arange(12))
    expected = old.predictor_.score_block(
        OLD.rows.positions(turned.row_labels), OLD.columns.positions(turned.column_labels)
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.slow
@every_model
def test_a_warm_fit_to_a_changed_matrix(name: str) -> None:
    old, train = model_of(name, epochs=4).fit(OLD), changed()
    before = old.complete()
    model = model_of(name, epochs=5).fit(train, start_from=old)
    assert len(model.history_) == 3 and model.settings.to_dict()["epochs"] == 5
    assert model.row_labels_.tolist() == train.row_labels.tolist() and np.isfinite(model.complete()).all()
    np.testing.assert_array_equal(old.complete(), before)
    again = model_of(name, epochs=5).fit(train, start_from=old)
    np.testing.assert_array_equal(again.complete(), model.complete())
    assert not np.array_equal(model_of(name, epochs=5).fit(train).complete(), model.complete())
    own = old.fit(train, start_from=old)  # itself
    assert own is old and own.row_labels_.tolist() == train.row_labels.tolist()


def test_weights_are_carried_by_label_and_those_of_new_labels_are_fresh() -> None:
    old, train = model_of("u-cf-nade").fit(OLD), changed()
    model = model_of("u-cf-nade")
    fresh = model._new_network(EntryStore.of(train)).state_dict()  # type: ignore[attr-defined]
    weights = begun(model, old, train).get_learned()
    learned = old.network_.state_dict()  # type: ignore[attr-defined]
    for name in ("first.weight", "last.weight", "last.bias"):  # a block of lines for each level
        new_blocks, fresh_blocks = (tensors[name].reshape(5, len(train.columns), -1) for tensors in (weights, fresh))
        old_blocks = learned[name].reshape(5, 12, -1)
        for place, label in enumerate(train.column_labels):
            if label == "fresh":
                assert torch.equal(new_blocks[:, place], fresh_blocks[:, place])
            else:
                assert torch.equal(new_blocks[:, place], old_blocks[:, OLD.columns.positions([label])[0]])
    assert torch.equal(weights["first_bias"], learned["first_bias"])


def test_rows_that_came_by_extension_are_carried_too() -> None:
    old = ALS(latent_size=2).fit(OLD)
    more = old.extend(
        ObservedMatrix.from_entries(["new"] * 3, ["column 1", "column 2", "column 3"], [5, 1, 5], OLD.scale)
    )
    rows, columns = WarmStart(more.entries_, more.predictor_, changed()).latents(rank=3)
    at = changed().rows.positions(["new", "newer"])
    np.testing.assert_array_equal(rows[at[0], [0, 1, 3, 4, 5]], more.predictor_.rows.whole()[-1])
    assert not rows[at[1]].any() and not rows[:, 2].any() and not columns[:, 2].any()


@pytest.mark.parametrize(
    "schedule, epochs",
    [
        ({"decay_every": 1, "decay": 0.6}, [2, 3, 5, 6, 8]),  # at 2, the step size is .36 of the first
        ({"decay_every": 100}, [5, 6, 7, 8, 9]),  # in the middle at the latest
    ],
    ids=str,
)
def test_the_schedule_is_entered_where_the_step_size_has_fallen_to_half(
    schedule: dict[str, Any], epochs: list[int]
) -> None:
    settings: dict[str, Any] = {"epochs": 10, "learning_rate": 0.1, "averaging": 0.9} | schedule
    cold = model_of("dmf-d", **settings).fit(OLD)
    warm = model_of("dmf-d", **settings).fit(OLD, start_from=cold)
    for read in (lambda record: record.learning_rate, lambda record: record.notes["sharpness"]):
        whole = [read(record) for record in cold.history_.records]
        assert [read(record) for record in warm.history_.records] == [whole[epoch] for epoch in epochs]


def test_a_factorisation_of_fewer_latents_gets_the_others_afresh() -> None:
    few = additive(14, 3)
    old = ALS(latent_size=5, penalty=0.01).fit(few)
    train = additive(14, 12)
    warm = ALS(latent_size=5, penalty=0.01, epochs=60).fit(train, start_from=old)
    cold = ALS(latent_size=5, penalty=0.01, epochs=60).fit(train)
    assert np.all(warm.predictor_.rows.whole().std(axis=0)[:6] > 1e-3)
    assert warm.history_.records[-1].loss == pytest.approx(cold.history_.records[-1].loss, rel=0.05)


def test_a_warm_fit_is_ahead_of_a_cold_one() -> None:
    split = split_entries(additive(40, 30), train=0.8, validation=0.2, test=0, seed=0)
    less = split.train.take(np.arange(36), np.arange(30))
    old = ALS(latent_size=2).fit(less)
    for epochs in (2, 4):
        warm = ALS(latent_size=2, epochs=epochs).fit(split.train, split.validation, start_from=old)
        cold = ALS(latent_size=2, epochs=epochs // 2).fit(split.train, split.validation)
        assert len(warm.history_) == len(cold.history_)
        assert warm.history_.records[-1].loss < cold.history_.records[-1].loss


def test_the_means_have_nothing_to_carry() -> None:
    old = Means().fit(OLD)
    np.testing.assert_array_equal(Means().fit(changed(), start_from=old).complete(), Means().fit(changed()).complete())


@pytest.mark.parametrize(
    "start, train, error, message",
    [
        ("model.safetensors", OLD, BadSetting, "str"),
        (Means().fit(OLD), OLD, BadSetting, "Means"),
        (ALS(), OLD, NotFitted, "fitted"),
        (
            ALS(latent_size=3, penalty=1, epochs=1).fit(OLD),
            OLD,
            BadSetting,
            "latent_size",
        ),
        (
            ALS(latent_size=2, epochs=1).fit(OLD),
            ObservedMatrix.from_entries(["row 1"], ["column 1"], [7], Scale(low=1, high=9)),
            BadSetting,
            "1 to 9",
        ),
        (
            ALS(latent_size=2, epochs=1).fit(OLD),
            ObservedMatrix.from_entries([1], [2], [5], OLD.scale),
            BadEntries,
            "column 2",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_started_from(start: Any, train: ObservedMatrix, error: type[Exception], message: str) -> None:
    model = ALS(latent_size=2)
    with pytest.raises(error, match=message):
        model.fit(train, start_from=start)
    assert not model.is_fitted


def test_networks_of_other_sizes_are_refused() -> None:
    values = np.random.default_rng(0).choice([0.1, 0.2, 0.3, 0.4, 0.5], size=(14, 12))
    scale = Scale(low=0, high=1)
    five = small_model("dmf-o").fit(ObservedMatrix.from_array(values, scale))
    two = ObservedMatrix.from_array(np.where(values > 0.2, 0.9, 0.2), scale)
    with pytest.raises(BadSetting, match="start_from"):
        small_model("dmf-o").fit(two, start_from=five)


def test_validation_entries_that_were_trained_on_are_told() -> None:
    split = split_entries(OLD, train=0.8, validation=0.2, test=0, seed=0)
    old = ALS(latent_size=2).fit(split.train)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ALS(latent_size=2).fit(split.train, split.validation, start_from=old)
    some = split.train.take_entries(np.arange(3))
    with pytest.warns(DeepMFWarning, match="validation"):
        ALS(latent_size=2).fit(changed(), some.take(np.array([0, 1]), np.arange(5)), start_from=old)


@pytest.mark.slow
def test_a_killed_warm_fit_continues_from_its_own_start_alone(tmp_path: Path) -> None:
    path, train = tmp_path / "run", changed()
    old, other = (model_of("dmf-o", seed=seed).fit(OLD) for seed in (0, 1))

    def fit(*callbacks: Any, start: Model | None = old) -> Model:
        model = model_of("dmf-o", epochs=8, averaging=0.9)
        return model.fit(train, start_from=start, checkpoint=path, checkpoint_every=1, callbacks=callbacks)

    def stop(record: EpochRecord, _: History) -> None:
        if record.epoch == 2:
            raise KeyboardInterrupt

    straight = fit()
    with pytest.warns(TrainingInterrupted):
        fit(stop)
    for start in (other, None):
        with pytest.raises(BadModelFile, match="differ"):
            fit(start=start)
    epochs: list[int] = []
    again = fit(lambda record, _: epochs.append(record.epoch))
    assert epochs == [2, 3]
    np.testing.assert_array_equal(again.complete(), straight.complete())


@pytest.mark.slow
def test_given_epochs_have_a_schedule_of_their_own() -> None:
    chosen = OrdinalDMF(epochs=60, device="cpu").settings_for(OLD)
    given: dict[str, Any] = {"hidden_sizes": (8,), "linear_size": 0, "device": "cpu"}
    first = OrdinalDMF(**given, epochs=2, views=1, landmarks=2).fit(OLD)
    assert (first.settings.validate_every, first.settings.patience) == (1, 1)
    warm = OrdinalDMF(**given, epochs=60, views=1, landmarks=2)
    warm.fit(OLD, start_from=first)
    settings = warm.settings
    assert (settings.validate_every, settings.patience) == (chosen.validate_every, chosen.patience) != (1, 1)
    assert settings.learning_rate == first.settings.learning_rate and settings.dropout == first.settings.dropout
    again = OrdinalDMF(**given, views=1, landmarks=2).fit(OLD, start_from=first).settings
    assert (again.epochs, again.validate_every, again.patience) == (2, 1, 1)
