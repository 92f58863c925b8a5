"""Limits: what a model reads of values and weights that come after training."""

import numpy as np
import pytest

from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale

UNBOUNDED = Scale(low=0, high=5, bounded=False)


def make_store(scale: Scale, values: list[float], weights: list[float] | None) -> EntryStore:
    columns = range(len(values))
    rows = [0] * len(values)
    return EntryStore.of(ObservedMatrix.from_entries(rows, columns, values, scale, weights=weights))


@pytest.mark.parametrize(
    ("scale", "trained", "written", "read"),
    [
        (UNBOUNDED, [-2, 3, 7], [1e300, -1e9, 4], [7, -2, 4]),
        (Scale(low=-9, high=9), [-2, 3], [9, -9, 0], [3, -2, 0]),
        (Scale([1, 2, 3, 4, 5]), [2, 3], [5, 1, 3], [5, 1, 3]),  # levels are read as they are
        (UNBOUNDED, [3, 3], [8, -1, 4], [5, 0, 4]),  # equal values: to the ends of the scale
        (Scale.interactions(), [1, 4], [900, 1, 3], [4, 1, 3]),
    ],
)
def test_values_are_read_within_those_of_training(
    scale: Scale, trained: list[float], written: list[float], read: list[float]
) -> None:
    new = ObservedMatrix.from_entries([1, 1, 1], [0, 1, 2], written, scale)
    store = make_store(scale, trained, None).extend(new).entries
    assert store.as_read.row_entries(np.array([1])).values.tolist() == read[: len(trained)]
    assert store.as_read.all_entries("row", np.array([1])).values.tolist() == read
    assert store.all_entries("row", np.array([1])).values.tolist() == written  # as it was given


@pytest.mark.parametrize(
    ("trained", "read"),
    [(None, [1, 0.5, 1e-6]), ([0.1, 3], [3, 0.5, 1e-6]), ([1, 1], [1, 0.5, 1e-6])],
)
def test_weights_are_read_as_at_most_the_largest_of_training(
    trained: list[float] | None, read: list[float]
) -> None:
    weights = [1e6, 0.5, 1e-6]
    new = ObservedMatrix.from_entries([1, 1, 1], [0, 1, 2], [1, 2, 3], UNBOUNDED, weights=weights)
    store = make_store(UNBOUNDED, [1, 3], trained).extend(new).entries
    assert store.as_read.added.extras.weights is not None
    assert store.as_read.added.extras.weights.tolist() == read
    assert store.extension is not None and store.extension.weights is not None
    assert store.extension.weights.tolist() == weights


def test_entries_within_the_limits_are_not_copied() -> None:
    store = make_store(UNBOUNDED, [1, 3], None)
    assert store.as_read is store
    more = store.extend(ObservedMatrix.from_entries([1], [0], [2], UNBOUNDED)).entries
    assert more.as_read is more


def test_training_values_are_the_ends_of_predictions_on_an_unbounded_scale() -> None:
    scale = make_store(UNBOUNDED, [-2, 7], None).scale
    assert scale.clip([-1e9, 3.0, 1e300]).tolist() == [-2, 3, 7]
    assert scale == UNBOUNDED and hash(scale) == hash(UNBOUNDED)
    assert make_store(Scale(low=0, high=9), [2, 3], None).scale.clip([-1, 99]).tolist() == [0, 9]
