"""Feature columns: the imputer reads them, completes all others by them, and gives them back as they are."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.base import clone

from deepmf.errors import BadFeatures, BadSetting
from deepmf.metrics import rmse_error
from deepmf.sklearn.imputer import DMFImputer

N = 120
_DICE = np.random.default_rng(0)
GROUPS = _DICE.integers(0, 3, N)
TRUTH = 3.0 * GROUPS[:, None] + np.array([0.0, 1.0, 2.0, 3.0]) + _DICE.normal(0, 0.2, (N, 4))
GAPS = np.where(_DICE.random(TRUTH.shape) < 0.4, np.nan, TRUTH)


def mixed() -> pd.DataFrame:
    """Columns of numbers, with one of text in the middle and one of numbers at the end that describe the rows."""
    frame = pd.DataFrame(GAPS, columns=list("abcd"), index=[f"plant {k}" for k in range(N)])
    frame.insert(2, "kind", np.array(["low", "middle", "high"])[GROUPS])
    frame["size"] = np.where(np.arange(N) % 7 == 0, np.nan, GROUPS + 0.5)
    return frame


def imputer(**parameters: Any) -> DMFImputer:
    return DMFImputer(**({"model": "als", "random_state": 0, "feature_columns": ["kind", "size"]} | parameters))


def test_a_frame_comes_back_with_its_features_in_their_places() -> None:
    table = mixed()
    before = table.copy()
    fitted = imputer().fit(table)
    completed = fitted.transform(table)
    pd.testing.assert_frame_equal(table, before)
    assert list(completed.columns) == ["a", "b", "kind", "c", "d", "size"] == fitted.get_feature_names_out().tolist()
    assert completed.index.tolist() == table.index.tolist()
    pd.testing.assert_series_equal(completed["kind"], table["kind"])
    pd.testing.assert_series_equal(completed["size"], table["size"])  # missing values are not filled in
    whole = completed[list("abcd")].to_numpy()
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(whole[~np.isnan(GAPS)], GAPS[~np.isnan(GAPS)])
    assert fitted.known_columns_.tolist() == [0, 1, 3, 4] and fitted.n_features_in_ == 6
    assert fitted.model_.column_labels_.tolist() == list("abcd")
    assert fitted.model_.entries_.row_features.encoding.names == ("kind", "size")


@pytest.mark.parametrize("model", ["means", "als", pytest.param("auto", marks=pytest.mark.slow)])
def test_rows_without_any_entry_are_completed_by_their_features(model: str) -> None:
    table = mixed()
    empty = table.copy()
    empty[list("abcd")] = np.nan
    described = imputer(model=model).fit(table).transform(empty)[list("abcd")].to_numpy()
    plain = DMFImputer(model=model, random_state=0).fit(GAPS).transform(np.full_like(GAPS, np.nan))
    assert rmse_error(described.ravel(), TRUTH.ravel()) < 0.5 * rmse_error(plain.ravel(), TRUTH.ravel())


def test_a_row_is_completed_alone_as_among_others() -> None:
    table = mixed()
    fitted = imputer().fit(table)
    some = fitted.transform(table)[list("abcd")].to_numpy()
    alone = np.vstack([fitted.transform(table.iloc[[k]])[list("abcd")].to_numpy() for k in range(20)])
    np.testing.assert_allclose(alone, some[:20], rtol=1e-5)
    moved = table.assign(kind="high")
    assert not np.allclose(fitted.transform(moved)[list("abcd")], some)


def _numbers() -> npt.NDArray[np.float64]:
    return np.column_stack([GROUPS + 0.5, GAPS])


def test_arrays_sparse_tables_objects_and_polars() -> None:
    table = _numbers()
    fitted = imputer(feature_columns=[0]).fit(table)
    completed = fitted.transform(table)
    assert completed.dtype == np.float64 and np.isfinite(completed).all()
    np.testing.assert_array_equal(completed[:, 0], table[:, 0])
    rows, columns = np.nonzero(~np.isnan(table))
    sparse = scipy.sparse.csr_array((table[rows, columns], (rows, columns)), shape=table.shape)
    np.testing.assert_array_equal(imputer(feature_columns=[0]).fit_transform(sparse), completed)
    objects = table.astype(object)
    objects[:, 0] = np.array(["low", "middle", "high"], dtype=object)[GROUPS]
    found = imputer(feature_columns=[0]).fit_transform(objects)
    assert found.dtype == object and found[:, 0].tolist() == objects[:, 0].tolist()
    assert np.isfinite(found[:, 1:].astype(float)).all()
    frame = pl.from_pandas(mixed())
    back = imputer().fit_transform(frame)
    assert isinstance(back, pl.DataFrame) and back["kind"].equals(frame["kind"])
    plain = pd.DataFrame(table, columns=list("fabcd"))
    assert isinstance(imputer(feature_columns=["f"]).fit_transform(plain), np.ndarray)
    shown = imputer(feature_columns=["f"]).set_output(transform="pandas").fit_transform(plain)
    assert list(shown.columns) == list("fabcd")


def test_text_beside_features_indicators_and_intervals() -> None:
    table = mixed()
    table["light"] = np.where(np.arange(N) % 5 == 0, None, np.where(GROUPS > 0, "sun", "shade"))
    table["empty"] = np.nan
    fitted = imputer(model="auto", epochs=3, add_indicator=True, keep_empty_features=True).fit(table)
    completed, interval = fitted.transform(table, return_interval=True)
    assert list(completed.columns) == fitted.get_feature_names_out().tolist()
    assert list(completed.columns)[:8] == ["a", "b", "kind", "c", "d", "size", "light", "empty"]
    assert list(completed.columns)[8:] == [f"missingindicator_{name}" for name in [*"abcd", "light", "empty"]]
    assert completed["light"].notna().all() and completed["kind"].tolist() == table["kind"].tolist()
    assert interval.lower.shape == (N, 8) and np.isnan(interval.lower[:, 2]).all()
    np.testing.assert_array_equal(interval.lower[:, 5], table["size"])
    assert (interval.lower[:, 0] <= interval.upper[:, 0]).all()


def test_what_stands_for_missing_does_so_in_features_too() -> None:
    table = np.where(np.isnan(_numbers()), -1.0, _numbers())
    table[::3, 0] = -1.0
    fitted = imputer(feature_columns=[0], missing_values=-1).fit(table)
    (encoding,) = fitted.model_.entries_.row_features.encoding.columns
    known = (table[:, 0] != -1) & (table[:, 1:] != -1).any(axis=1)  # rows without a cell are not learned from
    assert encoding.mean == pytest.approx(table[known, 0].mean())
    np.testing.assert_array_equal(fitted.transform(table)[:, 0], table[:, 0])


def test_a_category_that_is_new_is_no_error() -> None:
    table = mixed()
    completed = imputer().fit(table).transform(table.assign(kind="huge"))
    assert set(completed["kind"]) == {"huge"} and completed[list("abcd")].notna().all(axis=None)


def test_clones_and_pickles_keep_it() -> None:
    assert clone(imputer()).feature_columns == ["kind", "size"]
    plain = DMFImputer("als", random_state=0).fit_transform(GAPS)
    np.testing.assert_array_equal(imputer(feature_columns=[]).fit_transform(GAPS), plain)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("kind", "must be a list of names or positions of columns; got 'kind'"),
        (3, "must be a list of names or positions of columns; got 3"),
        (["knd"], "has 'knd', which is no column of the table; did you mean 'kind'"),
        ([9], "has the position 9; the table has 6 columns, from 0 on"),
        (["kind", 2], "has the column 2 twice"),
        (["a", "b", "kind", "c", "d", "size"], "has all 6 feature.s. of the table; none is left"),
    ],
    ids=str,
)
def test_bad_feature_columns(given: Any, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        imputer(feature_columns=given).fit(mixed())


def test_bad_features() -> None:
    table = mixed()
    with pytest.raises(BadFeatures, match="'size' has no value to learn from"):
        imputer().fit(table.assign(size=np.nan))
    with pytest.raises(BadFeatures, match="reads entries alone, no features"):
        imputer(model="u-autorec", epochs=1).fit(table)
    with pytest.raises(BadFeatures, match="'size' cannot be read as numbers"):
        imputer().fit(table).transform(table.assign(size="large"))
