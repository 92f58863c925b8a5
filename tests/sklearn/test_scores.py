"""Scores of imputers: what is hidden really is, and the formula is what it says."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from deepmf.errors import BadEntries, BadSetting
from deepmf.sklearn.imputer import DMFImputer
from deepmf.sklearn.scores import hidden_entries_score, imputation_scores, mask_entries

RANDOM = np.random.default_rng(0)
FULL = RANDOM.normal(size=(60, 4)) @ RANDOM.normal(size=(4, 4)) * [1, 10, 100, 1000]
TABLE = np.where(RANDOM.random(FULL.shape) < 0.2, np.nan, FULL)


SHOWN: list[tuple[Any, Any]] = []  # by spies: what they were fitted on, and what they completed


class Spy(BaseEstimator):  # type: ignore[misc]
    """Fills in the truth with an error, and writes down what it was shown."""

    def __init__(self, truth: npt.NDArray[Any], error: float = 0.0) -> None:
        self.truth = truth
        self.error = error

    def fit(self, X: Any, y: Any = None) -> "Spy":  # noqa: N803
        self.fitted_ = X
        return self

    def transform(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        SHOWN.append((self.fitted_, X))
        given = np.asarray(X, dtype=float)
        answers = np.empty_like(given)
        # rows may be some of all: find each by what is left of it
        for row, line in enumerate(given):
            same = np.isnan(line) | (line == self.truth)
            answers[row] = self.truth[np.flatnonzero(same.all(axis=1))[0]]
        return np.where(
            np.isnan(given), answers + self.error * np.nanstd(self.truth, axis=0), given
        )


@pytest.fixture(autouse=True)
def nothing_shown() -> None:
    SHOWN.clear()


@pytest.fixture(scope="module")
def whole() -> npt.NDArray[Any]:
    """A table without holes in which any two entries tell a row from all others."""
    return np.column_stack([np.arange(60.0), FULL])


def test_the_truth_scores_one(whole: npt.NDArray[Any]) -> None:
    options: Any = {"hidden": 0.1, "n_splits": 2}
    assert imputation_scores(Spy(whole), whole, **options).tolist() == [1, 1]
    assert np.all(imputation_scores(Spy(whole, error=0.5), whole, **options) < 0.9)


def test_what_is_hidden_is_not_shown(whole: npt.NDArray[Any]) -> None:
    imputation_scores(Spy(whole), whole, hidden=0.1, n_splits=1)
    fitted, shown = SHOWN.pop()
    np.testing.assert_array_equal(fitted, shown)
    assert np.isnan(fitted).mean() == pytest.approx(0.1, abs=0.05)


def test_the_formula() -> None:
    imputer, shown = SimpleImputer(strategy="median").fit(TABLE), list[npt.NDArray[Any]]()
    recorder = make_pipeline(
        FunctionTransformer(lambda given: shown.append(given) or given), imputer
    )
    score = hidden_entries_score(recorder, TABLE, hidden=0.3, seed=7)
    hidden = np.isnan(shown[0]) & ~np.isnan(TABLE)
    assert hidden.sum() == pytest.approx(0.3 * np.count_nonzero(~np.isnan(TABLE)), rel=0.3)
    spreads, off = np.nanstd(TABLE, axis=0), np.square(imputer.statistics_ - TABLE)
    errors, deviations = off / spreads**2, np.square((np.nanmean(TABLE, axis=0) - TABLE) / spreads)
    expected = pytest.approx(1 - errors[hidden].sum() / deviations[hidden].sum(), rel=1e-12)
    assert score == expected
    assert hidden_entries_score(imputer, TABLE, hidden=0.3, seed=8) != expected


def test_every_kind_of_table_scores_the_same() -> None:
    expected = imputation_scores(SimpleImputer(), TABLE, n_splits=2)
    frame = pd.DataFrame(TABLE, columns=list("abcd"), index=RANDOM.permutation(60))
    for table in (frame, pl.from_pandas(frame), frame.set_axis([3, 1, 2, 0], axis=1)):
        np.testing.assert_allclose(imputation_scores(SimpleImputer(), table, n_splits=2), expected)
        imputer = SimpleImputer().fit(table)
        np.testing.assert_allclose(
            hidden_entries_score(imputer, table),
            hidden_entries_score(SimpleImputer().fit(TABLE), TABLE),
        )


def test_as_a_scorer_of_new_rows() -> None:
    rows = KFold(3)
    scores = cross_val_score(SimpleImputer(), TABLE, scoring=hidden_entries_score, cv=rows)
    held_out = [
        hidden_entries_score(SimpleImputer().fit(TABLE[known]), TABLE[new])
        for known, new in rows.split(TABLE)
    ]
    assert scores.tolist() == held_out


def test_what_cannot_be_scored() -> None:
    with pytest.raises(BadEntries, match="differ"):
        hidden_entries_score(SimpleImputer().fit(TABLE), np.ones((5, 4)))
    lost = np.column_stack([TABLE, np.full(60, np.nan)])
    with pytest.warns(UserWarning, match="Skipping"), pytest.raises(BadEntries, match="60 x 4"):
        hidden_entries_score(SimpleImputer().fit(lost), lost)
    kept = SimpleImputer(keep_empty_features=True)
    assert np.isfinite(imputation_scores(kept, lost)).all()


def test_the_imputer_scores_itself_on_hidden_cells() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=400)
    table = pd.DataFrame(
        {"x": x, "copy": x + 0.3 * random.normal(size=400), "noise": random.normal(size=400)}
    )
    found = DMFImputer(random_state=0).fit(table.mask(random.random(table.shape) < 0.1)).score_
    assert found is not None and list(found.columns) == ["x", "copy", "noise"]
    by_name = dict(zip(found.columns, found.column_scores, strict=True))
    assert min(by_name["x"], by_name["copy"]) > 0.6 > 0.1 > abs(by_name["noise"])
    assert np.all((found.column_margins > 0) & (found.column_margins < 0.1))
    assert 0.3 < found.score < 0.9 and 0 < found.margin < 0.1
    assert DMFImputer("gaussian", random_state=0).fit(table).score_ is None


@pytest.mark.parametrize("mechanism", ["mcar", "mar", "mnar"])
def test_masks_hide_the_share_by_the_mechanism(mechanism: str) -> None:
    cells = np.random.default_rng(0).normal(size=(4000, 3))
    cells[:, 2] += cells[:, 1]
    masked = mask_entries(cells, mechanism, 0.3, seed=1)
    np.testing.assert_array_equal(np.isnan(masked.table), masked.hidden)
    shares = masked.hidden.mean(axis=0)
    np.testing.assert_allclose(shares, [0.0 if mechanism == "mar" else 0.3, 0.3, 0.3], atol=0.03)
    by_driver = [cells[masked.hidden[:, at], driver].mean() for at, driver in ((1, 0), (2, 2))]
    expected = {"mcar": (False, False), "mar": (True, True), "mnar": (False, True)}[mechanism]
    assert tuple(mean > 0.2 for mean in by_driver) == expected


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"mechanism": "x"}, "'x'"), ({"share": 1.5}, "1.5"), ({"seed": "a"}, "seed")],
)
def test_bad_masks_are_refused(arguments: Any, word: str) -> None:
    with pytest.raises(BadSetting, match=word):
        mask_entries(np.ones((4, 4)), **arguments)


def test_masks_at_random_have_reasons_that_are_visible() -> None:
    """Where the driver is hidden, it has no influence: its values are as large in rows with and
    without a gap."""
    cells = np.random.default_rng(0).normal(size=(20_000, 3))
    hidden = mask_entries(cells, "mar", 0.3, slope=2.0, seed=1).hidden
    unseen = hidden[:, 1]
    gap = cells[unseen & hidden[:, 2], 1].mean() - cells[unseen & ~hidden[:, 2], 1].mean()
    assert abs(gap) < 0.1
    assert cells[~unseen & hidden[:, 2], 1].mean() - cells[~unseen & ~hidden[:, 2], 1].mean() > 0.5


def test_cells_are_hidden_also_where_the_same_seed_drew_the_gaps() -> None:
    gappy = np.where(np.random.default_rng(3).random(FULL.shape) < 0.2, np.nan, FULL)
    assert abs(hidden_entries_score(SimpleImputer().fit(gappy), gappy, hidden=0.2, seed=3)) < 0.2
