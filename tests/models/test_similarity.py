"""Kernel ridge by similarities: against the closed form, twins, and models that are stored, extended
and asked why."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf import BayesianMF, Features, ObservedMatrix, OrdinalDMF
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import AxisFeatures
from deepmf.models.loading import load
from deepmf.models.similarity import KernelRidge, SimilarityMember
from deepmf.training.holdout import HeldOut

Floats = npt.NDArray[np.float64]


def compare(places: Floats, others: Floats | None = None) -> Floats:
    """How similar points are: 1 where they are equal."""
    others = places if others is None else others
    distances = np.square(places[:, None] - others).sum(axis=2)
    return np.asarray(np.exp(-distances / places.shape[1]))


def make_table(n_rows: int, n_columns: int, *, seed: int) -> tuple[Floats, Floats, Floats]:
    """A table (rows, columns) of products of points, and the points of rows and of columns."""
    dice = np.random.default_rng(seed)
    rows, columns = dice.normal(size=(n_rows, 3)), dice.normal(size=(n_columns, 3))
    return rows @ columns.T, rows, columns


def gather(
    table: Floats, observed: Any, similar_rows: Floats, similar_columns: Floats | None = None
) -> EntryStore:
    """A store of the observed cells of a table."""
    size = table.shape
    matrix = ObservedMatrix.from_array(np.where(observed, table, np.nan))
    of_rows = AxisFeatures.of(matrix.rows, Features.from_similarity(range(size[0]), similar_rows))
    if similar_columns is None:
        return EntryStore.of(matrix, of_rows)
    of_columns = Features.from_similarity(range(size[1]), similar_columns)
    return EntryStore.of(matrix, of_rows, AxisFeatures.of(matrix.columns, of_columns))


def make_kernel(similarities: Floats | None, profiles: Floats) -> Floats:
    distances = np.square(profiles[:, None] - profiles).sum(axis=2)
    alike = np.exp(-distances / np.square(profiles).sum(axis=1).mean())
    return alike + 0.5 if similarities is None else (similarities + alike) / 2 + 0.5


@pytest.mark.parametrize("has_columns", [True, False])
@pytest.mark.parametrize("penalty", [1.0, 0.1])
def test_a_whole_table_has_the_predictions_of_the_closed_form(
    has_columns: bool, penalty: float
) -> None:
    table, rows, columns = make_table(12, 9, seed=0)
    of_columns = compare(columns) if has_columns else None
    store = gather(table, np.ones(table.shape), compare(rows), of_columns)
    found = KernelRidge.of(store, np.nan).solve(penalty).encode_all()
    centred = table - table.mean()
    row_lengths, u = np.linalg.eigh(make_kernel(compare(rows), centred))
    column_lengths, v = np.linalg.eigh(make_kernel(of_columns, centred.T))
    lengths = np.outer(row_lengths, column_lengths)
    expected = u @ ((u.T @ centred @ v) * lengths / (lengths + penalty)) @ v.T + table.mean()
    scores = found.score_block(np.arange(12), np.arange(9))
    np.testing.assert_allclose(scores, expected, atol=1e-3)


def test_entries_alone_and_their_weights_count() -> None:
    table, rows, _ = make_table(8, 6, seed=1)
    observed = np.random.default_rng(0).random(table.shape) < 0.6
    store = gather(table, observed, compare(rows))
    ridge = KernelRidge.of(store, np.nan)
    found = ridge.solve(0.3).encode_all().score_block(np.arange(8), np.arange(6))
    mean = table[observed].mean()
    profiles = np.where(observed, table - mean, 0.0)
    nearest = np.sort(compare(rows) - np.eye(8), axis=1)[:, -5:-4]
    weights = np.where(compare(rows) >= nearest, compare(rows), 0.0) - np.eye(8)
    means = (weights / weights.sum(axis=1, keepdims=True)) @ profiles
    filled = np.where(observed, profiles, means)  # columns have no similarities to be filled by
    kernels = make_kernel(compare(rows), filled), make_kernel(None, profiles.T)
    cells = np.flatnonzero(observed)
    whole = np.kron(*kernels)
    duals = np.linalg.solve(
        whole[np.ix_(cells, cells)] + 0.3 * np.eye(cells.size), profiles.ravel()[cells]
    )
    expected = (whole[:, cells] @ duals).reshape(table.shape) + mean
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_a_row_without_entries_has_the_predictions_of_its_twin() -> None:
    table, rows, columns = make_table(30, 20, seed=2)
    observed = np.ones(table.shape)
    observed[0] = 0
    twins = np.concatenate([rows[1:2], rows[1:]])
    similar = np.where(compare(twins) > 0.999, 1.0, 0.0)  # all others are strangers
    store = gather(table, observed, similar, compare(columns))
    factors = KernelRidge.of(store, np.nan).solve(0.1).encode_all()
    new, twin = factors.score_block(np.array([0, 1]), np.arange(20))
    assert np.corrcoef(new, table[1])[0, 1] > 0.98
    np.testing.assert_allclose(new, twin, atol=0.05 * np.abs(twin).max())


def test_entries_of_a_new_row_say_more_than_its_similarity() -> None:
    table, rows, _ = make_table(80, 30, seed=5)
    noisy = table + 0.3 * np.random.default_rng(0).normal(size=table.shape)
    store = gather(noisy[20:], np.ones((60, 30)), compare(rows[20:]))
    new = Features.from_similarity(range(100, 120), compare(rows[:20], rows[20:]), to=range(60))
    assert store.row_features is not None
    features = new.encode(store.row_features.encoding)
    factors = KernelRidge.of(store, np.nan).solve(0.3).encode_all()
    errors = []
    for n_given in (0, 3, 15):
        starts, others = np.arange(21) * n_given, np.tile(np.arange(n_given), 20)
        entries = AxisEntries(starts, others, noisy[:20, :n_given].ravel(), features)
        guests = factors.fold_in("row", entries).score_block(np.arange(20), np.arange(15, 30))
        errors.append(np.std(guests - table[:20, 15:]))
    assert errors[2] < 0.9 * errors[0]
    assert errors[1] < 1.05 * errors[0]


def test_what_is_new_on_both_sides_is_predicted_by_both_similarities() -> None:
    table, rows, columns = make_table(80, 60, seed=6)
    store = gather(table[10:, 10:], np.ones((70, 50)), compare(rows[10:]), compare(columns[10:]))
    factors = KernelRidge.of(store, np.nan).solve(0.1).encode_all()
    nothing = AxisEntries(np.zeros(11, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))
    for axis, features, points in (
        ("row", store.row_features, rows),
        ("column", store.column_features, columns),
    ):
        assert features is not None
        to_known = compare(points[:10], points[10:])
        new = Features.from_similarity(range(100, 110), to_known, to=range(len(points) - 10))
        vectors = new.encode(features.encoding)
        factors = factors.fold_in(axis, nothing._replace(features=vectors))  # type: ignore[arg-type]
    predicted = factors.score_block(np.arange(10), np.arange(10))
    assert np.corrcoef(predicted.ravel(), table[:10, :10].ravel())[0, 1] > 0.6


def test_rows_that_have_the_lowest_value_alone_count_as_empty_where_told() -> None:
    table = np.kron(np.eye(2), np.ones((4, 3)))
    table[0] = 0.0
    similar = np.kron(np.eye(2), np.ones((4, 4)))
    store = gather(table, np.ones(table.shape), similar)
    known, unknown = (
        KernelRidge.of(store, floor).solve(0.1).encode_all().score_block(np.arange(1), np.arange(6))
        for floor in (np.nan, 0.0)
    )
    assert np.abs(known).max() < 0.2
    assert unknown[0, :3].min() > 0.7


def split_rows(
    table: Floats, rows: Floats, n_new: int
) -> tuple[ObservedMatrix, Features, Features]:
    """The matrix of the last rows, their similarity, and that of the first rows to them."""
    labels = [f"drug {at}" for at in range(len(table))]
    matrix = ObservedMatrix.from_array(table[n_new:], row_labels=labels[n_new:])
    known = Features.from_similarity(labels[n_new:], compare(rows[n_new:]))
    similar = compare(rows[:n_new], rows[n_new:])
    return matrix, known, Features.from_similarity(labels[:n_new], similar, to=labels[n_new:])


@pytest.fixture(scope="module", params=[BayesianMF, OrdinalDMF])
def drugs(request: pytest.FixtureRequest) -> tuple[BayesianMF | OrdinalDMF, Floats, Features]:
    """A model of a noisy table whose first five rows are new, the table, and the features of
    these."""
    table, rows, _ = make_table(60, 12, seed=3)
    table = (table + np.random.default_rng(0).normal(size=table.shape)).round(1)
    matrix, known, new = split_rows(table, rows, 5)
    model = request.param(effort="quick", seed=0, device="cpu", neighbours=None)
    return model.fit(matrix, row_features=known), table, new


@pytest.mark.slow
def test_new_rows_are_predicted_by_their_similarity_and_their_entries(
    drugs: tuple[BayesianMF | OrdinalDMF, Floats, Features],
) -> None:
    model, table, new = drugs
    assert model.chosen_["members"]["similarity"] > 0.2
    more = model.extend(None, row_features=new)
    rows, columns = new.labels.tolist(), np.arange(12)
    predicted = more.predict(np.repeat(rows, 12), np.tile(columns, 5)).reshape(5, 12)
    assert np.corrcoef(predicted.ravel(), table[:5].ravel())[0, 1] > 0.7
    entries = ObservedMatrix.from_array(table[:5, :6], row_labels=rows, scale=model.scale_)
    told = more.extend(entries).predict(np.repeat(rows, 6), np.tile(columns[:6], 5))
    errors = [np.std(part - table[:5, :6]) for part in (predicted[:, :6], told.reshape(5, 6))]
    assert errors[1] < 0.9 * errors[0]
    forgotten = more.extend(entries).forget(entries=(np.repeat(rows, 6), np.tile(columns[:6], 5)))
    again = forgotten.predict(np.repeat(rows, 12), np.tile(columns, 5))
    np.testing.assert_allclose(again, predicted.ravel(), atol=1e-4)


@pytest.mark.slow
def test_what_is_stored_predicts_the_same_and_says_why(
    drugs: tuple[BayesianMF | OrdinalDMF, Floats, Features], tmp_path: Path
) -> None:
    model, table, new = drugs
    more = model.extend(None, row_features=new)
    more.save(tmp_path / "model")
    again = load(tmp_path / "model")
    rows, columns = np.repeat(more.row_labels_, 12), np.tile(np.arange(12), 60)
    assert np.array_equal(again.predict(rows, columns), more.predict(rows, columns))
    later = load(tmp_path / "model").extend(None, row_features=new.relabel([*"abcde"]))
    first = later.predict(["a"] * 12, np.arange(12))
    np.testing.assert_allclose(first, more.predict(["drug 0"] * 12, np.arange(12)), atol=1e-5)
    guest = again.fold_in(features={"similarity": {"drug 9": 1.0}})
    (reason,) = guest.explain(int(np.argmax(np.abs(table[9])))).features
    assert (reason.name, reason.value) == ("similarity", "drug 9")
    assert reason.effect != 0
    wider = again.extend(ObservedMatrix.from_entries(["drug 5"], [99], [1.0], scale=model.scale_))
    values = wider.fold_in([0, 99], [1.0, 2.0]).predict([1, 99])
    assert np.isfinite(values).all()


@pytest.mark.slow
def test_similarities_that_say_nothing_cost_nothing() -> None:
    table, rows, _ = make_table(60, 40, seed=4)
    dice = np.random.default_rng(0)
    table = np.round(table + 0.2 * dice.normal(size=table.shape), 1)
    hidden = dice.random(table.shape) < 0.5
    at = np.nonzero(~hidden)
    matrix = ObservedMatrix.from_entries(*at, table[at])
    shuffled = compare(rows[dice.permutation(60)])
    errors = []
    for features in (None, Features.from_similarity(range(60), shuffled)):
        model = BayesianMF(effort="quick", seed=0, device="cpu").fit(matrix, row_features=features)
        errors.append(np.std(model.predict(*np.nonzero(hidden)) - table[hidden]))
    assert errors[1] < 1.05 * errors[0]


def test_without_similarities_there_is_no_member() -> None:
    table, rows, _ = make_table(20, 20, seed=0)
    matrix = ObservedMatrix.from_array(table)
    features = AxisFeatures.of(matrix.rows, Features.from_columns(range(20), {"x": rows[:, 0]}))
    seen, held_out = HeldOut.split(matrix, seed=0)
    store = EntryStore.of(seen, features)
    inputs: Any = type("Inputs", (), {"seen": store, "entries": store, "held_out": held_out})
    assert SimilarityMember().fit(inputs) is None
