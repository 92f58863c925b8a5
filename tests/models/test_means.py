"""Shrunk means: the contract, and the formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.models.contract import FullContract

from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.means import (
    NO_WEIGHTS,
    FeatureRidge,
    FeatureWeights,
    Means,
    MeansSettings,
    compute_prior,
    load_feature_weights,
)
from deepmf.scoring.effects import SHRINKAGE
from deepmf.testing import additive


class TestMeans(FullContract):
    model = Means
    recovery_error = 0.5

    def test_the_formula(self) -> None:
        matrix = additive()
        model = Means(shrinkage=3.0).fit(matrix)
        dense = matrix.to_array()
        mean = np.nanmean(dense)
        counts = (~np.isnan(dense)).sum(axis=0)
        column_effects = np.nansum(dense - mean, axis=0) / (counts + 3)
        left = dense - mean - column_effects
        row_effects = np.nansum(left, axis=1) / ((~np.isnan(dense)).sum(axis=1) + 3)
        expected = np.clip(mean + row_effects[:, None] + column_effects, 1, 5)
        missing = np.isnan(dense)
        np.testing.assert_allclose(model.complete()[missing], expected[missing])

    def test_one_entry_is_enough(self) -> None:
        matrix = ObservedMatrix.from_array([[2, np.nan], [np.nan, 4]])
        assert np.all(np.isfinite(Means().fit(matrix).complete()))

    def test_it_has_no_latents(self) -> None:
        model = Means().fit(additive())
        for ask in (model.similar_rows, model.similar_columns):
            with pytest.raises(BadSetting, match="latents"):
                ask("row 1")


DICE = np.random.default_rng(0)

FEATURES = FeatureVectors.of_parts(
    30,
    6,
    [
        (np.arange(30), DICE.integers(6, size=30), np.ones(30)),
        (np.arange(30), np.zeros(30, int), np.ones(30)),
    ],
)


def test_the_formula() -> None:
    precisions, targets = DICE.uniform(0.1, 2, size=30), DICE.normal(size=(30, 2))
    table = FEATURES.to_sparse().toarray().astype(np.float64)
    gram = table.T @ (table * precisions[:, None]) + 3.0 * precisions.mean() * np.eye(6)
    expected = np.linalg.solve(gram, table.T @ (targets * precisions[:, None]))
    np.testing.assert_allclose(
        FeatureRidge(FEATURES, precisions, 3.0).weights(targets), expected, rtol=1e-9
    )


def test_vectors_that_do_not_count_have_no_say() -> None:
    precisions = np.where(np.arange(30) < 20, 1.0, 0.0)
    targets = DICE.normal(size=(30, 1))
    others = np.where(np.arange(30)[:, None] < 20, targets, 100.0)
    ridge = FeatureRidge(FEATURES, precisions, 1.0)
    np.testing.assert_array_equal(ridge.weights(targets), ridge.weights(others))
    few = FeatureRidge(FEATURES.take(np.arange(20)), np.ones(20), 1.0)
    np.testing.assert_allclose(ridge.weights(targets), few.weights(targets[:20]))


def test_nothing_counts() -> None:
    assert not FeatureRidge(FEATURES, np.zeros(30), 1.0).weights(np.ones((30, 1))).any()


@pytest.fixture
def store() -> EntryStore:
    matrix = ObservedMatrix.from_array([[1.0, 2.0], [3.0, np.nan]], row_labels=["ann", "bob"])
    features = Features.from_columns(["bob", "ann"], {"age": [25.0, 40.0]})
    return EntryStore.of(matrix, row_features=AxisFeatures.of(matrix.rows, features))


def test_priors_are_products(store: EntryStore) -> None:
    entries, weights = (
        store.row_entries(np.arange(2)),
        DICE.normal(size=(store.row_features.n_inputs, 2)),
    )  # type: ignore[union-attr]
    np.testing.assert_allclose(
        compute_prior(entries, weights), entries.features.to_sparse().toarray() @ weights, rtol=1e-6
    )  # type: ignore[arg-type, union-attr]
    assert compute_prior(entries, None) is None
    assert compute_prior(store.column_entries(np.arange(2)), weights) is None


def test_weights_come_back_and_others_are_refused(store: EntryStore) -> None:
    n_inputs = store.row_features.n_inputs  # type: ignore[union-attr]
    weights = FeatureWeights(rows=DICE.normal(size=(n_inputs, 1)))
    found = load_feature_weights(store, weights.list_tensors(), width=1, kind="float64")
    assert found.rows is weights.rows and found.columns is None
    assert NO_WEIGHTS.list_tensors() == {}
    wrong: list[dict[str, Any]] = [
        {},
        FeatureWeights(rows=np.zeros((n_inputs + 1, 1))).list_tensors(),
        FeatureWeights(rows=np.zeros((n_inputs, 2))).list_tensors(),
        FeatureWeights(rows=np.zeros((n_inputs, 1), dtype=np.float32)).list_tensors(),
        FeatureWeights(rows=np.full((n_inputs, 1), np.nan)).list_tensors(),
    ]
    for tensors in wrong:
        with pytest.raises(BadModelFile, match=r"features\.rows"):
            load_feature_weights(store, tensors, width=1, kind="float64")


def test_the_default_is_what_unknown_ids_fall_back_to() -> None:
    assert MeansSettings().shrinkage == SHRINKAGE


def test_shrinkage_is_not_negative() -> None:
    with pytest.raises(BadSetting, match="^shrinkage"):
        MeansSettings(shrinkage=-1)
