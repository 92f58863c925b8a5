"""Patterns of gaps, and observed beside imputed values: counts that are known by construction."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from deepmf import plots
from deepmf.errors import BadEntries
from deepmf.sklearn import imputed_values, missing_patterns

TABLE = {
    "age": [20.0, None, None, 50.0, 60.0],
    "kind": ["a", None, None, "b", None],
    "full": [1, 2, 3, 4, 5],
}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_patterns_are_counted_the_most_frequent_first(make: type) -> None:
    found = missing_patterns(make(TABLE))
    assert found.columns == ("age", "kind", "full")
    assert found.counts.tolist() == [2, 2, 1]
    assert found.missing.tolist() == [
        [False, False, False],
        [True, True, False],
        [False, True, False],
    ]
    assert "age, kind" in str(found)


def test_a_mark_is_missing_too() -> None:
    assert missing_patterns(np.array([[1, -1], [1, 2]]), missing_values=-1).missing.any(
        axis=0
    ).tolist() == [False, True]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_observed_and_imputed_values_are_told_apart(make: type) -> None:
    before, after = make(TABLE), make(TABLE | {"kind": ["a", "a", "b", "b", "b"]})
    values = imputed_values(before, after, "kind")
    assert (values.observed.tolist(), values.imputed.tolist()) == (["a", "b"], ["a", "b", "b"])


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(BadEntries, match="knd"):
        imputed_values(pd.DataFrame(TABLE), pd.DataFrame(TABLE), "knd")


@pytest.mark.slow
def test_shares_and_densities_are_drawn() -> None:
    bars = plots.plot_imputed(["a", "b", "b", "b"], ["a", "a"])
    assert [bar.get_height() for bar in bars.patches] == [0.25, 0.75, 1.0, 0.0]
    random = np.random.default_rng(0)
    curves = plots.plot_imputed(random.normal(size=300), random.normal(3.0, size=100))
    (first, second) = (line.get_xydata() for line in curves.get_lines()[:2])
    assert first[first[:, 1].argmax(), 0] == pytest.approx(0.0, abs=0.5)
    assert second[second[:, 1].argmax(), 0] == pytest.approx(3.0, abs=0.5)


def test_patterns_are_drawn_with_their_rows() -> None:
    ax = plots.plot_missing_patterns(*missing_patterns(pd.DataFrame(TABLE)))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["2", "2", "1"]
    missing, observed = ax.patches
    n_corners = 5
    assert (
        len(missing.get_path().vertices) == 3 * n_corners
        and len(observed.get_path().vertices) == 6 * n_corners
    )
