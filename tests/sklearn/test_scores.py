"""Scores of imputers: what is hidden really is, and the formula is what it says."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, cross_val_score

from deepmf.errors import BadEntries, BadSetting
from deepmf.sklearn import genotype_scores
from deepmf.sklearn.imputer import DMFImputer
from deepmf.sklearn.scores import hidden_entries_score, imputation_scores
from deepmf.sklearn.splitters import AreaSplitter, EntrySplitter

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
        for row, line in enumerate(given):  # rows may be some of all: find each by what is left of it
            same = np.isnan(line) | (line == self.truth)
            answers[row] = self.truth[np.flatnonzero(same.all(axis=1))[0]]
        return np.where(np.isnan(given), answers + self.error * np.nanstd(self.truth, axis=0), given)


@pytest.fixture(autouse=True)
def nothing_shown() -> None:
    SHOWN.clear()


@pytest.fixture(scope="module")
def whole() -> npt.NDArray[Any]:
    """A table without holes in which any two entries tell a row from all others."""
    return np.column_stack([np.arange(60.0), FULL])


@pytest.mark.parametrize("cv", [EntrySplitter(n_splits=2, hidden=0.1), AreaSplitter(n_splits=2, hidden=0.1)])
def test_the_truth_scores_one(cv: Any, whole: npt.NDArray[Any]) -> None:
    assert imputation_scores(Spy(whole), whole, cv=cv).tolist() == [1, 1]
    assert np.all(imputation_scores(Spy(whole, error=0.5), whole, cv=cv) < 0.9)


def test_what_is_hidden_is_not_shown(whole: npt.NDArray[Any]) -> None:
    imputation_scores(Spy(whole), whole, cv=EntrySplitter(n_splits=1, hidden=0.1))
    fitted, shown = SHOWN.pop()
    assert np.isnan(fitted).sum() == np.isnan(shown).sum() == 30
    imputation_scores(Spy(whole), whole, cv=AreaSplitter(n_splits=1, new_rows=0.25, hidden=0.1))
    fitted, shown = SHOWN.pop()
    assert fitted.shape == (45, 5)
    assert not np.isnan(fitted).any()
    assert np.isnan(shown).sum() == 7  # a tenth of 15 x 5
    assert not set(shown[:, 0]) & set(fitted[:, 0])


def test_the_formula() -> None:
    fold = next(EntrySplitter(n_splits=1, hidden=0.3, seed=7).split(TABLE))
    imputer = SimpleImputer(strategy="median").fit(TABLE)
    errors = deviations = 0.0
    for column in range(4):
        values = TABLE[:, column]
        scale = np.nanstd(values)
        shown = np.where(fold.shown[:, column], values, np.nan)
        answers = np.where(np.isnan(shown), imputer.statistics_[column], shown)
        hidden = fold.hidden[:, column]
        errors += (((answers - values)[hidden] / scale) ** 2).sum()
        deviations += (((np.nanmean(values) - values)[hidden] / scale) ** 2).sum()
    expected = pytest.approx(1 - errors / deviations, rel=1e-12)
    assert hidden_entries_score(imputer, TABLE, hidden=0.3, seed=7) == expected
    assert hidden_entries_score(imputer, TABLE, hidden=0.3, seed=8) != expected


def test_every_kind_of_table_scores_the_same() -> None:
    expected = imputation_scores(SimpleImputer(), TABLE, cv=AreaSplitter(n_splits=2))
    frame = pd.DataFrame(TABLE, columns=list("abcd"), index=RANDOM.permutation(60))
    for table in (frame, pl.from_pandas(frame), frame.set_axis([3, 1, 2, 0], axis=1)):
        np.testing.assert_allclose(imputation_scores(SimpleImputer(), table, cv=AreaSplitter(n_splits=2)), expected)
        imputer = SimpleImputer().fit(table)
        np.testing.assert_allclose(
            hidden_entries_score(imputer, table), hidden_entries_score(SimpleImputer().fit(TABLE), TABLE)
        )


@pytest.mark.slow
def test_sparse_tables() -> None:
    from deepmf.sklearn.imputer import DMFImputer

    rows, columns = np.nonzero(~np.isnan(TABLE))
    stored = scipy.sparse.csr_array((TABLE[rows, columns], (rows, columns)), shape=TABLE.shape)
    imputer = DMFImputer(model="means")
    np.testing.assert_allclose(imputation_scores(imputer, stored), imputation_scores(imputer, TABLE))
    assert hidden_entries_score(imputer.fit(stored), stored) == hidden_entries_score(imputer.fit(TABLE), TABLE)


def test_as_a_scorer_of_new_rows() -> None:
    rows = KFold(3)
    scores = cross_val_score(SimpleImputer(), TABLE, scoring=hidden_entries_score, cv=rows)
    held_out = [hidden_entries_score(SimpleImputer().fit(TABLE[known]), TABLE[new]) for known, new in rows.split(TABLE)]
    assert scores.tolist() == held_out


def test_what_cannot_be_scored() -> None:
    with pytest.raises(BadSetting, match="^cv"):
        imputation_scores(SimpleImputer(), TABLE, cv=5)  # type: ignore[arg-type]
    with pytest.raises(BadEntries, match="differ"):
        hidden_entries_score(SimpleImputer().fit(TABLE), np.ones((5, 4)))
    lost = np.column_stack([TABLE, np.full(60, np.nan)])
    with (
        pytest.warns(UserWarning, match="Skipping"),
        pytest.raises(BadEntries, match="60 x 4"),
    ):
        hidden_entries_score(SimpleImputer().fit(lost), lost)
    kept = SimpleImputer(keep_empty_features=True)
    assert np.isfinite(imputation_scores(kept, lost)).all()


def test_the_imputer_scores_itself_on_hidden_cells() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=400)
    table = pd.DataFrame({"x": x, "copy": x + 0.3 * random.normal(size=400), "noise": random.normal(size=400)})
    found = DMFImputer(random_state=0).fit(table.mask(random.random(table.shape) < 0.1)).score_
    assert found is not None and list(found.columns) == ["x", "copy", "noise"]
    by_name = dict(zip(found.columns, found.column_scores, strict=True))
    assert min(by_name["x"], by_name["copy"]) > 0.6 > 0.1 > abs(by_name["noise"])
    assert np.all((found.column_margins > 0) & (found.column_margins < 0.1))
    assert found.column_counts.sum() > 100
    assert 0.3 < found.score < 0.9 and 0 < found.margin < 0.1
    assert DMFImputer("gaussian", random_state=0).fit(table).score_ is None


def test_scores_of_one_variant_are_those_of_the_formulas() -> None:
    truth = np.repeat([0, 0, 1, 1, 2], [50, 5, 10, 25, 10])
    called = np.repeat([0, 1, 0, 1, 2], [50, 5, 10, 25, 10])
    scores = genotype_scores(truth[:, None], called[:, None], edges=(0, 0.5))
    chance = (55 * 60 + 35 * 30 + 10 * 10) / 100**2
    assert scores.concordance == pytest.approx([0.85])
    assert scores.iqs == pytest.approx([(0.85 - chance) / (1 - chance)])
    assert scores.r2 == pytest.approx([np.corrcoef(truth, called)[0, 1] ** 2])
    assert scores.n_variants.tolist() == [1] and scores.n_cells.tolist() == [100]


def test_a_guess_of_the_common_genotype_agrees_but_has_no_quality() -> None:
    truth = np.zeros((200, 1))
    truth[:4] = 1.0
    scores = genotype_scores(truth, np.zeros((200, 1)), edges=(0, 0.05, 0.5))
    assert scores.concordance[0] == pytest.approx(0.98)
    assert scores.iqs[0] == pytest.approx(0.0)
    assert np.isnan(scores.r2[0])  # a constant has no correlation
    assert np.isnan(scores.concordance[1]) and scores.n_variants.tolist() == [1, 0]


def test_variants_are_binned_by_the_rarer_allele_and_scored_on_hidden_cells_alone() -> None:
    random = np.random.default_rng(0)
    truth = np.column_stack([random.binomial(2, share, 400) for share in (0.02, 0.5, 0.97)]).astype(float)
    hidden = random.random(truth.shape) < 0.3
    dosages = np.where(hidden, truth, 2.0 - truth)  # right where it counts
    scores = genotype_scores(truth, dosages, hidden, edges=(0, 0.1, 0.5))
    assert scores.n_variants.tolist() == [2, 1]
    assert scores.n_cells.sum() == hidden.sum()
    np.testing.assert_allclose([scores.concordance, scores.r2, scores.iqs], 1.0)


@pytest.mark.parametrize(
    ("truth", "dosages", "word"),
    [([[3.0]], [[1.0]], "0, 1 or 2"), ([[1.0]], [[2.5]], "between"), ([[1.0]], [[1.0, 2.0]], "shape")],
)
def test_what_is_no_genotype_is_refused(truth: Any, dosages: Any, word: str) -> None:
    with pytest.raises(BadEntries, match=word):
        genotype_scores(truth, dosages)


def test_bins_cover_all_frequencies() -> None:
    with pytest.raises(BadSetting, match="edges"):
        genotype_scores([[1.0]], [[1.0]], edges=(0.1, 0.5))
