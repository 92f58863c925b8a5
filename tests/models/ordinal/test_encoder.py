"""The encoder of OrdinalDMF: trained latents are what it makes of the training entries; choices on
held-out ones."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepmf.data import Split, split_areas, split_entries
from deepmf.datasets import generate
from deepmf.errors import NotBetterThanMeans
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.models.ordinal import encoder as encoder_module
from deepmf.models.ordinal.encoder import OrdinalEncoder
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.ordinal.refinement import Refinement
from deepmf.models.ordinal.trainer import OrdinalTrainer
from deepmf.scoring.encoders import split_by_entries
from deepmf.scoring.latents import Latents
from deepmf.testing import additive
from deepmf.training.history import EpochRecord, History
from deepmf.training.holdout import HeldOut
from deepmf.training.loop import Epoch
from deepmf.training.progress import EpochDisplay

SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "latent_size": 4,
    "epochs": 5,
    "views": 3,
    "landmarks": 6,
    "row_penalty": 3.0,
    "column_penalty": 20.0,
    "linear_size": 0,
    "dropout": 0.0,
    "device": "cpu",
    "presence": None,
}

MATRIX = generate(20, 15, density=0.5, seed=0).matrix


@pytest.fixture(scope="module")
def model() -> OrdinalDMF:
    return OrdinalDMF(**SMALL).fit(MATRIX)


def encoder_of(model: OrdinalDMF) -> OrdinalEncoder:
    network: Any = model.predictor_.members["network"].fitted
    assert isinstance(network.encoder, OrdinalEncoder)
    return network.encoder


def all_rows(model: OrdinalDMF) -> AxisEntries:
    return model.entries_.row_entries(np.arange(20))


def test_trained_rows_are_what_it_makes_of_their_entries(model: OrdinalDMF) -> None:
    encoder, predictor = encoder_of(model), model.predictor_
    rows = encoder.encode("row", all_rows(model), predictor.columns)
    np.testing.assert_allclose(rows, predictor.rows.base, atol=1e-5)
    columns = encoder.encode("column", model.entries_.column_entries(np.arange(15)), predictor.rows)
    np.testing.assert_allclose(columns, predictor.columns.base, atol=1e-5)
    assert rows.dtype == columns.dtype == np.float32


def test_latents_have_the_fields_of_the_layout(model: OrdinalDMF) -> None:
    encoder, layout = encoder_of(model), encoder_of(model).layout
    rows, columns = model.predictor_.rows.base, model.predictor_.columns.base
    assert (
        layout.n_direction == 4
        and layout.n_landmarks == len(model.predictor_.encoder.landmarks)
        and layout.n_response == 5
    )
    assert rows.shape[1] == columns.shape[1] == encoder.refinement_columns.shape[1] == layout.width
    np.testing.assert_allclose(columns[:, layout.row_effect], 1)
    np.testing.assert_allclose(rows[:, layout.column_effect], 1)
    assert not columns[:, layout.response].any()
    assert np.all(np.diff(rows[:, layout.response][:, :-1]) > 0)  # cutpoints rise
    assert model.predictor_.factors.n_beside == layout.n_beside


def test_rows_are_encoded_by_the_columns_of_the_refinement_and_columns_by_trained_rows(
    model: OrdinalDMF,
) -> None:
    encoder, predictor = encoder_of(model), model.predictor_
    others = Latents(np.full_like(predictor.columns.base, 7.0))
    np.testing.assert_array_equal(
        encoder.encode("row", all_rows(model), others),
        encoder.encode("row", all_rows(model), predictor.columns),
    )
    entries = model.entries_.column_entries(np.arange(15))
    changed = predictor.rows.replace(np.array([0]), np.full((1, predictor.rows.base.shape[1]), 7.0))
    np.testing.assert_array_equal(
        encoder.encode("column", entries, changed),
        encoder.encode("column", entries, predictor.rows),
    )


def test_each_row_is_encoded_alone(model: OrdinalDMF) -> None:
    encoder, predictor, entries = encoder_of(model), model.predictor_, all_rows(model)
    together = encoder.encode("row", entries, predictor.columns)
    for row in (0, 7, 19):
        alone = encoder.encode("row", entries.take(np.array([row])), predictor.columns)
        np.testing.assert_allclose(alone[0], together[row], atol=1e-5)
    assert encoder.encode(
        "row", entries.take(np.array([], dtype=int)), predictor.columns
    ).shape == (0, together.shape[1])


def test_columns_without_entries_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    refine = Refinement.refine
    monkeypatch.setattr(
        Refinement,
        "refine",
        lambda own, vectors: sizes.append(vectors.starts.size - 1) or refine(own, vectors),
    )
    rows, columns, values = MATRIX.entries()
    model = OrdinalDMF(**SMALL).fit(
        ObservedMatrix.from_entries(
            rows, columns, values, column_labels=[*MATRIX.column_labels, *map(str, range(500))]
        )
    )
    assert max(sizes) == 20 and 16 in sizes
    entries, predictor = model.entries_.column_entries(np.array([300])), model.predictor_
    alone = encoder_of(model).encode("column", entries, predictor.rows)
    np.testing.assert_allclose(predictor.columns.base[15:], alone.repeat(500, axis=0), atol=1e-6)


def test_encoding_changes_and_draws_nothing(model: OrdinalDMF) -> None:
    before = torch.get_rng_state()
    weights = {name: tensor.clone() for name, tensor in model.network_.state_dict().items()}
    encoder_of(model).encode("row", all_rows(model), model.predictor_.columns)
    assert torch.equal(before, torch.get_rng_state())
    assert all(
        torch.equal(tensor, weights[name]) for name, tensor in model.network_.state_dict().items()
    )


def test_what_is_packed(model: OrdinalDMF) -> None:
    packed, encoder = encoder_of(model).pack(), encoder_of(model)
    assert packed.content == {"penalties": encoder.penalties._asdict()}
    np.testing.assert_array_equal(packed.tensors["refinement.columns"], encoder.refinement_columns)
    np.testing.assert_array_equal(
        packed.tensors["refinement.landmarks"], model.predictor_.encoder.landmarks
    )
    network = {name for name in packed.tensors if name.startswith("network.")}
    assert network == {f"network.{name}" for name in model.network_.state_dict()}
    assert len(packed.tensors) == len(network) + 2


def test_values_enter_in_units_of_the_scale(model: OrdinalDMF) -> None:
    tenfold = ObservedMatrix.from_array(10 * MATRIX.to_array(), Scale([10, 20, 30, 40, 50]))
    other = OrdinalDMF(**SMALL).fit(tenfold)
    np.testing.assert_allclose(other.predictor_.rows.base, model.predictor_.rows.base, atol=1e-4)


WITH_LINEAR: dict[str, Any] = {
    "hidden_sizes": (8,),
    "latent_size": 4,
    "epochs": 8,
    "views": 3,
    "landmarks": 6,
    "dropout": 0.0,
    "linear_size": 3,
    "linear_iterations": 6,
    "device": "cpu",
    "presence": None,
    "neighbours": None,
}

LARGER = generate(50, 40, density=0.5, noise=0.3, seed=0).matrix


@pytest.fixture(scope="module")
def split() -> Split:
    return split_entries(LARGER, train=0.8, validation=0.1, test=0.1, seed=0)


@pytest.fixture(scope="module")
def alone() -> OrdinalDMF:
    """One that was fitted without validation entries, and has a sampler."""
    model = OrdinalDMF(**WITH_LINEAR).fit(LARGER)
    assert "sampler" in model.chosen_["members"]
    return model


@pytest.fixture(scope="module")
def validated(split: Split) -> OrdinalDMF:
    """One that was fitted with validation entries, and has a sampler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotBetterThanMeans)
        model = OrdinalDMF(**WITH_LINEAR).fit(split.train, split.validation)
    assert "sampler" in model.chosen_["members"]
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
            ],
        ),
    ],
)
def test_a_sampler_that_is_fitted_beside_the_network_is_the_same(device: str) -> None:
    class Replaying(OrdinalTrainer):
        """One that replays its steps from the second epoch on, as on a GPU where an epoch has a few
        steps."""

        n_epochs = 0

        @property
        def replays_steps(self) -> bool:
            return self.n_epochs > 1

        def run_epoch(self, epoch: int) -> Epoch:
            assert self.sampler_fit is None or self.replays_steps  # nothing disturbs the recording
            self.n_epochs += 1
            return super().run_epoch(epoch)

    class Beside(OrdinalDMF):
        def _make_trainer(self, *given: Any) -> Any:
            trainer = super()._make_trainer(*given)
            trainer.__class__ = Replaying
            trainers.append(trainer)
            return trainer

    trainers: list[Any] = []
    settings = WITH_LINEAR | {"linear_iterations": 20, "device": device}
    beside, after = Beside(**settings).fit(LARGER), OrdinalDMF(**settings).fit(LARGER)
    sampled = trainers[0].sampler_fit.result()
    assert beside.predictor_.members["sampler"].fitted is sampled.fitted
    assert beside.chosen_on_entries_ == after.chosen_on_entries_
    np.testing.assert_allclose(
        beside.complete(), after.complete(), atol=0.0 if device == "cpu" else 1e-3
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_steps_are_recorded_while_another_thread_allocates() -> None:
    # One step in each epoch: the graph is recorded in the fourth.
    one_step = {
        "block_rows": LARGER.shape[0],
        "block_columns": LARGER.shape[1],
        "linear_iterations": 20,
    }
    model = OrdinalDMF(**WITH_LINEAR | one_step | {"device": "cuda", "epochs": 12}).fit(LARGER)
    assert "sampler" in model.chosen_["members"]


def test_stages_are_told_and_the_last_is_the_error_of_the_model(
    validated: OrdinalDMF, split: Split
) -> None:
    history = validated.history_
    assert list(history.stages) == ["branches", "refined", "sampler", "network"]
    assert history.stages["network"] <= history.stages["refined"]
    rows, columns, values = split.validation.entries()
    # All iterations predict held-out entries, the model has some of them as samples.
    assert history.best_error == pytest.approx(
        rmse_error(validated.predict(rows, columns), values), rel=0.02
    )


class Stages(EpochDisplay):
    """Takes note of the stages."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, record: EpochRecord, history: History) -> None:
        assert not self.names  # they follow the epochs

    def show_stage(self, name: str) -> None:
        self.names.append(name)


@pytest.mark.slow
def test_stages_are_shown_as_they_begin(split: Split) -> None:
    settings = WITH_LINEAR | {"epochs": 1}
    for linear_size, validation, names in (
        (4, split.validation, ["refining", "sampler"]),
        (0, split.validation, ["refining"]),
        (4, None, ["refining", "sampler"]),
    ):
        shown = Stages()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotBetterThanMeans)
            model = OrdinalDMF(**settings | {"linear_size": linear_size})
            model.fit(split.train, validation, callbacks=[shown])
        assert shown.names == names
        # nothing of this fit is left for the next one
        assert vars(model).keys() == vars(OrdinalDMF()).keys()


def test_entries_that_were_set_aside_tell_the_error_of_the_means(alone: OrdinalDMF) -> None:
    seen, held_out = HeldOut.split(LARGER, seed=alone.settings.seed, one_in=10)
    assert held_out is not None
    means = (
        Means()
        .fit(seen)
        .predict(LARGER.row_labels[held_out.rows], LARGER.column_labels[held_out.columns])
    )
    assert alone.history_.means_error == pytest.approx(rmse_error(means, held_out.values))
    # too few to set any aside
    assert OrdinalDMF(**WITH_LINEAR).fit(additive(12, 10)).history_.means_error is None


@pytest.mark.slow
def test_on_real_values_of_low_rank_it_is_as_good_as_als_with_a_penalty_that_was_searched(
    tmp_path: Path,
) -> None:
    dice = np.random.default_rng(0)
    whole = dice.normal(size=(150, 3)) @ dice.normal(size=(3, 60)) + 0.5 * dice.normal(
        size=(150, 60)
    )
    matrix = ObservedMatrix.from_array(np.where(dice.random(whole.shape) < 0.4, whole, np.nan))
    parts = split_areas(matrix, new_rows=0.2, new_columns=0.0, seed=0)

    def errors(model: Model) -> Any:
        more = model.fit(parts.train, parts.validation).extend(parts.extension)
        tests = (parts.test[area].entries() for area in ("I", "II"))
        return np.array(
            [rmse_error(more.predict(rows, columns), values) for rows, columns, values in tests]
        )

    model = OrdinalDMF(**WITH_LINEAR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotBetterThanMeans)
        searched = min(
            (errors(ALS(penalty=each)) for each in (0.007, 0.015, 0.03, 0.06)),
            key=lambda each: each[0],
        )
        found = errors(model)
    assert np.all(found < 1.03 * searched) and np.all(searched < 0.6 * whole.std())
    assert model.chosen_on_entries_["linear_share"] > 0.8
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").complete(), model.complete())


def test_more_latents_than_the_matrix_has_columns() -> None:
    model = OrdinalDMF(**WITH_LINEAR | {"linear_size": 1000}).fit(LARGER)
    assert model.chosen_on_entries_["linear_size"] == 40


@pytest.mark.slow
def test_penalties_that_are_given_are_kept() -> None:
    network = WITH_LINEAR | {"linear_size": 0}
    model = OrdinalDMF(**network | {"row_penalty": 7.0, "column_penalty": 9.0}).fit(LARGER)
    assert tuple(encoder_of(model).penalties) == (7.0, 9.0)
    one = OrdinalDMF(**network | {"row_penalty": 7.0}).fit(LARGER)
    assert encoder_of(one).penalties.rows == 7.0 and encoder_of(one).penalties.columns != 9.0


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e-15, 1e9])
def test_the_slope_of_a_narrow_or_wide_scale_can_be_stored(factor: float, tmp_path: Path) -> None:
    values = generate(50, 40, density=0.5, levels=None, noise=0.3, seed=0).matrix.to_array()
    model = OrdinalDMF(**WITH_LINEAR).fit(ObservedMatrix.from_array(factor * values))
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").complete(), model.complete())


@pytest.mark.slow
@pytest.mark.parametrize("with_validation", [True, False])
def test_parts_of_the_entries_give_what_all_at_once_do(
    split: Split, monkeypatch: pytest.MonkeyPatch, with_validation: bool
) -> None:
    def fit_model() -> OrdinalDMF:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotBetterThanMeans)
            return OrdinalDMF(**WITH_LINEAR).fit(
                split.train, split.validation if with_validation else None
            )

    sizes, refine = [], OrdinalEncoder.refine

    def watch(encoder: OrdinalEncoder, refinement: Refinement, entries: AxisEntries) -> Any:
        sizes.append(entries.values.size)
        return refine(encoder, refinement, entries)

    monkeypatch.setattr(OrdinalEncoder, "refine", watch)
    whole = fit_model()
    longest = max(sizes)
    sizes.clear()
    monkeypatch.setattr(
        encoder_module, "split_by_entries", partial(split_by_entries, most_entries=100)
    )
    in_parts = fit_model()
    assert sum(sizes) > 2 * split.train.n_entries and len(sizes) > 10 and max(sizes) <= longest
    np.testing.assert_allclose(in_parts.complete(), whole.complete(), atol=1e-4)
    assert in_parts.chosen_on_entries_ == whole.chosen_on_entries_
