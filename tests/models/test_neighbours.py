"""Neighbours: columns that belong together predict each other, of values and of residuals."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

from deepmf.errors import BadModelFile
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.bayesian import BayesianMF
from deepmf.models.loading import load
from deepmf.models.neighbours import (
    NearRidge,
    Neighbours,
    find_near,
    fit_to_residuals,
    fit_to_values,
)
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.storage.model_file import read_file
from deepmf.training.holdout import HeldOut

N_ROWS, N_PAIRS = 120, 15


def make_pairs(share: float, *, n_rows: int = N_ROWS, seed: int = 0) -> npt.NDArray[Any]:
    """Return a table whose columns 2k and 2k + 1 are equal up to little noise, and to no others;
    a share of its cells is observed."""
    dice = np.random.default_rng(seed)
    signal = np.repeat(dice.normal(size=(n_rows, N_PAIRS)), 2, axis=1)
    table = 3.0 + signal + 0.1 * dice.normal(size=signal.shape)
    return np.where(dice.random(table.shape) < share, table, np.nan)


def hold_out(table: npt.NDArray[Any]) -> tuple[EntryStore, EntryStore, HeldOut]:
    train = ObservedMatrix.from_array(table)
    seen, held_out = HeldOut.split(train, seed=0, one_in=10)
    assert held_out is not None
    return EntryStore.of(seen), EntryStore.of(train), held_out


@pytest.mark.parametrize(("share", "n_rows"), [(0.9, N_ROWS), (0.1, 10_000)])
def test_the_nearest_column_is_the_other_of_its_pair(share: float, n_rows: int) -> None:
    seen = EntryStore.of(ObservedMatrix.from_array(make_pairs(share, n_rows=n_rows)))
    start = Neighbours.start(seen, 1, predicts_residuals=False)
    expected = np.arange(2 * N_PAIRS) ^ 1
    np.testing.assert_array_equal(start.near[:, 0], expected)


def test_columns_of_few_entries_have_the_same_neighbours_and_never_themselves() -> None:
    random = np.random.default_rng(0)
    table = random.normal(size=(300, 200)) * (random.random((300, 200)) < 0.01)
    table[:20, :6] = random.normal(size=(20, 6))  # those of more columns have many
    inputs = scipy.sparse.csr_array(table.astype(np.float32))
    is_entry = (table != 0).astype(float)
    inputs.data[::10] = 0.0  # entries that are the mean of their column
    table = inputs.toarray()
    near = find_near(inputs, inputs, 20, are_same=True)
    deviations = np.sqrt((1e-9 + np.square(table).sum(axis=0)) / is_entry.sum(axis=0).clip(1))
    products = np.abs(table.T @ table) / deviations / (is_entry.T @ is_entry + 200.0)
    np.fill_diagonal(products, 0.0)
    best = -np.sort(-products, axis=1)[:, :20]
    taken = np.take_along_axis(products, near, axis=1)
    np.testing.assert_allclose(np.where(best > 0, taken, 0.0), best, rtol=1e-5)
    assert np.all(near != np.arange(200)[:, None])
    assert np.all(np.diff(np.sort(near[:6], axis=1), axis=1) > 0)


def test_weights_are_the_ridge_regressions_of_a_column_on_its_neighbours() -> None:
    table = make_pairs(0.5)
    seen = EntryStore.of(ObservedMatrix.from_array(table))
    start = Neighbours.start(seen, 4, predicts_residuals=False)
    columns = seen.all_entries("column", np.arange(table.shape[1]))
    targets = columns.values - start.means[columns.group_of]
    narrow, wide = start.learn(columns, targets, [NearRidge(2, 3.0), NearRidge(4, 1.0)])
    deviations = table - np.nanmean(table, axis=0)
    inputs, variance = np.nan_to_num(deviations), np.nanmean(np.square(deviations))
    for neighbours, penalty in ((narrow, 3.0), (wide, 1.0)):
        for column in (0, 7):
            rows = ~np.isnan(table[:, column])
            near = inputs[rows][:, neighbours.near[column]]
            gram = near.T @ near + variance * penalty * np.eye(near.shape[1])
            expected = np.linalg.solve(gram, near.T @ inputs[rows, column])
            np.testing.assert_allclose(neighbours.weights[column], expected, atol=1e-4)


def test_values_are_predicted_where_no_low_rank_holds() -> None:
    seen, entries, held_out = hold_out(make_pairs(0.9))
    fit = fit_to_values(seen, entries, held_out)
    assert fit is not None
    assert rmse_error(fit.location, held_out.values) < 0.6 * np.std(held_out.values)
    rows = np.arange(N_ROWS)
    block = fit.fitted.score_block(rows, slice(0, 2 * N_PAIRS))
    pairs = np.repeat(rows, 2 * N_PAIRS), np.tile(np.arange(2 * N_PAIRS), N_ROWS)
    np.testing.assert_allclose(block.ravel(), fit.fitted.score_pairs(*pairs).location, atol=1e-5)


def test_few_cells_have_no_values_to_fill() -> None:
    assert fit_to_values(*hold_out(make_pairs(0.1))) is None


def test_residuals_are_predicted_from_sparse_entries_as_from_dense_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from deepmf.models import neighbours

    seen, entries, held_out = hold_out(make_pairs(0.5))
    model = BayesianMF(latent_size=1, epochs=4, neighbours=None, device="cpu", presence=None)
    predictor = model.fit(entries.train).predictor_
    dense = fit_to_residuals(seen, entries, held_out, predictor)
    monkeypatch.setattr(neighbours, "is_dense", lambda matrix: False)
    sparse = fit_to_residuals(seen, entries, held_out, predictor)
    for some, others in zip(dense, sparse, strict=True):
        np.testing.assert_allclose(
            some.held_out_scores.location, others.held_out_scores.location, atol=1e-4
        )
    plain = predictor.predict(held_out.rows, held_out.columns)
    errors = [rmse_error(plain + fit.held_out_scores.location, held_out.values) for fit in dense]
    assert min(errors) < 0.9 * rmse_error(plain, held_out.values)


def test_neighbours_that_say_nothing_take_no_part() -> None:
    dice = np.random.default_rng(0)
    table = dice.normal(size=(80, 30))
    table[dice.random(table.shape) < 0.5] = np.nan
    model = BayesianMF(latent_size=1, epochs=6, presence=None, device="cpu")
    fitted = model.fit(ObservedMatrix.from_array(table))
    assert fitted.chosen_["members"] == {"sampler": 1.0}
    assert fitted.chosen_["parts"]["neighbours"].startswith("left out")


@pytest.mark.parametrize(
    "model",
    [
        OrdinalDMF(networks=0, linear_size=1, linear_iterations=4, presence=None, device="cpu"),
        BayesianMF(latent_size=1, epochs=6, presence=None, device="cpu"),
    ],
)
@pytest.mark.parametrize("share", [0.9, 0.4])
def test_a_model_with_neighbours_extends_folds_in_forgets_and_is_saved(
    model: Any, share: float, tmp_path: Path
) -> None:
    table = make_pairs(share)
    whole = make_pairs(1.0)
    fitted = model.fit(ObservedMatrix.from_array(table[:100, :-1]))
    assert fitted.chosen_["members"]["neighbours"] > 0.0
    missing = np.argwhere(np.isnan(table[:100, :-1]))
    truths = whole[missing[:, 0], missing[:, 1]]
    error = rmse_error(fitted.predict(*missing.T), truths)
    assert error < 0.9 * np.std(truths)
    model_file = tmp_path / "model"
    entries = np.argwhere(~np.isnan(table))
    new = entries[(entries[:, 0] >= 100) | (entries[:, 1] == 2 * N_PAIRS - 1)]
    extension = ObservedMatrix.from_entries(*new.T, table[tuple(new.T)], fitted.scale_)
    more = fitted.extend(extension)
    more.save(model_file)
    rows, columns = np.argwhere(np.isnan(table)).T
    predicted = more.predict(rows, columns)
    np.testing.assert_array_equal(load(model_file).predict(rows, columns), predicted)
    is_new = rows >= 100
    of_new_rows = rmse_error(predicted[is_new], whole[rows, columns][is_new])
    assert of_new_rows < 1.2 * error
    mine = np.flatnonzero(~np.isnan(table[3, :-1]))
    folded = fitted.fold_in(mine, table[3, mine]).predict(np.arange(29))
    np.testing.assert_allclose(folded, fitted.predict([3] * 29, np.arange(29)), atol=1e-4)
    less = more.forget(columns=[2 * N_PAIRS - 1], rows=[110])
    np.testing.assert_allclose(
        less.predict([105] * 29, np.arange(29)), more.predict([105] * 29, np.arange(29)), atol=1e-4
    )
    ranked = fitted.recommend(3, n=3, rank_by="value", include_observed=True)
    best = np.sort(fitted.predict([3] * 29, np.arange(29)))[::-1][:3]
    np.testing.assert_allclose(ranked.values, best, atol=1e-5)


def test_an_entry_explains_the_column_that_belongs_to_it() -> None:
    table = make_pairs(0.9)
    table[0, :2] = 6.0, np.nan
    model = BayesianMF(latent_size=1, epochs=6, presence=None, device="cpu")
    explanation = model.fit(ObservedMatrix.from_array(table)).explain(0, 1)
    assert explanation.labels[0] == 0 and explanation.effects[0] > 0.5


def test_stored_neighbours_that_are_no_columns_are_refused(tmp_path: Path) -> None:
    model = BayesianMF(latent_size=1, epochs=6, presence=None, device="cpu")
    fitted = model.fit(ObservedMatrix.from_array(make_pairs(0.9)))
    fitted.save(tmp_path / "model")
    stored = read_file(tmp_path / "model", kind="model")
    tensors = dict(stored.tensors)
    tensors["neighbours.near"] = np.full_like(tensors["neighbours.near"], 2 * N_PAIRS)
    with pytest.raises(BadModelFile, match="near"):
        BayesianMF.from_stored(stored.content, tensors)
