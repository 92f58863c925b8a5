"""Folds of entries: disjoint, exact in number, honest about what is new."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from deepmf.errors import BadEntries, BadSplit
from deepmf.sklearn.splitters import AreaSplitter, EntrySplitter, Splitter

RANDOM = np.random.default_rng(0)
TABLE = np.where(RANDOM.random((20, 5)) < 0.3, np.nan, RANDOM.normal(size=(20, 5)))
OBSERVED = ~np.isnan(TABLE)
N_ENTRIES = int(OBSERVED.sum())


def test_entries_are_hidden_anywhere() -> None:
    for fold in EntrySplitter(n_splits=3, hidden=0.25).split(TABLE):
        np.testing.assert_array_equal(fold.fitted, fold.shown)
        assert not np.any(fold.shown & fold.hidden)
        np.testing.assert_array_equal(fold.shown | fold.hidden, OBSERVED)
        assert fold.hidden.sum() == round(0.25 * N_ENTRIES)


def test_new_rows_are_not_fitted() -> None:
    for fold in AreaSplitter(n_splits=3, new_rows=0.2, hidden=0.5).split(TABLE):
        is_new = ~fold.fitted.any(axis=1)
        assert is_new.sum() == 4
        np.testing.assert_array_equal(fold.fitted, OBSERVED & ~is_new[:, None])
        assert not np.any(fold.shown & fold.hidden)
        np.testing.assert_array_equal(fold.shown | fold.hidden, OBSERVED & is_new[:, None])
        assert abs(fold.hidden.sum() - 0.5 * OBSERVED[is_new].sum()) <= 0.5


@pytest.mark.parametrize("kind", [EntrySplitter, AreaSplitter])
def test_folds_depend_on_the_seed_alone(kind: type[Splitter]) -> None:
    splitter = kind(n_splits=3, seed=4)  # type: ignore[call-arg]
    folds = list(splitter.split(TABLE))
    assert len(folds) == splitter.get_n_splits() == 3
    for again in (TABLE * 1000, pd.DataFrame(TABLE), TABLE.tolist()):
        np.testing.assert_array_equal(list(splitter.split(again)), folds)
    assert not np.array_equal(folds[0].hidden, folds[1].hidden)
    np.testing.assert_array_equal(next(kind(seed=5).split(TABLE)), folds[1])  # type: ignore[call-arg]


def test_stored_zeros_are_split_too() -> None:
    stored = scipy.sparse.csr_array((np.zeros(10), (np.arange(10), np.zeros(10, dtype=int))), shape=(10, 3))
    assert next(EntrySplitter(hidden=0.3).split(stored)).hidden.sum(axis=0).tolist() == [3, 0, 0]


def test_what_cannot_be_split() -> None:
    for hidden in (0.0, 1.0, -0.1):
        with pytest.raises(BadSplit, match="^hidden"):
            next(EntrySplitter(hidden=hidden).split(TABLE))
    with pytest.raises(BadSplit, match="^new_rows=20"):
        next(AreaSplitter(new_rows=20).split(TABLE))
    with pytest.raises(BadEntries, match="2 x 3"):
        next(EntrySplitter().split(np.full((2, 3), np.nan)))
