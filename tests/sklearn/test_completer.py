"""Completers: models fold rows in, and a stack is the weighted mean of its parts."""

import numpy as np

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.means import Means
from deepmf.sklearn.completer import ByMeans, ByModel, Stacked
from deepmf.sklearn.observed_table import TableEntries

TABLE = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 7.0]])


def by_model() -> ByModel:
    return ByModel(Means().fit(ObservedMatrix.from_array(TABLE)))


def test_a_model_predicts_for_rows_that_are_folded_in() -> None:
    completer = by_model()
    found = completer.predicted(TableEntries.of(np.array([[5.0, np.nan]])), np.array([0]), np.array([1]), None)
    np.testing.assert_array_equal(found, completer.model.fold_in([0], [5.0]).predict([1]))
    assert (completer.name, completer.gives_distribution, completer.features_of(np.array([0]))) == (
        "Means",
        False,
        None,
    )


def test_a_stack_is_the_weighted_mean_of_its_parts() -> None:
    completer, entries = by_model(), TableEntries.of(TABLE[:2])
    asked = entries, np.array([0, 1]), np.array([1, 1]), None
    stacked = Stacked((completer, ByMeans()), np.array([0.25, 0.75]))
    expected = 0.25 * completer.predicted(*asked) + 0.75 * np.array([2.0, 0.0])
    np.testing.assert_allclose(stacked.predicted(*asked), expected)
