"""Scores of imputed genotypes by minor-allele frequency: concordance, squared correlation and imputation quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting
from deepmf.matrix.arrays import FloatArray

_EDGES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
_N_GENOTYPES = 3


class GenotypeScores(NamedTuple):
    """Scores of the variants in each bin of minor-allele frequency; every array has the shape (bins,).

    lower, upper: ends of the bins; a frequency at the upper end belongs to the bin. n_variants, n_cells: variants with
    scored cells, and the scored cells. concordance, r2, iqs: means over variants, NaN where none has the score.
    """

    lower: FloatArray
    upper: FloatArray
    n_variants: npt.NDArray[np.int64]
    n_cells: npt.NDArray[np.int64]
    concordance: FloatArray
    r2: FloatArray
    iqs: FloatArray


def genotype_scores(truth: Any, dosages: Any, hidden: Any = None, *, edges: Sequence[float] = _EDGES) -> GenotypeScores:
    """Compare imputed genotypes with the truth, by the minor-allele frequency of the variants.

    Rare variants are easy to guess: a wrong imputation that always says 0 agrees with most cells. So concordance is
    reported beside r2 and beside the imputation quality score, which subtracts the agreement by chance.

    Parameters
    ----------
    truth
        Genotypes (samples, variants) 0, 1 or 2, NaN where unknown. The allele frequencies are those of all known cells.
    dosages
        Imputed dosages from 0 to 2; rounded, they are genotypes.
    hidden
        Mask of the cells to score; None: all cells of known truth.
    edges
        Ends of the bins of minor-allele frequency, rising from 0 to 0.5.

    Returns
    -------
    Concordance: share of equal genotypes. r2: squared correlation of dosage and genotype, undefined if either is
    constant. IQS: (agreement - chance) / (1 - chance), where chance is the agreement of independent genotypes with the
    same shares (Lin et al., A new statistic to evaluate imputation reliability, PLoS ONE 5, 2010).

    >>> truth = np.array([[0, 0], [0, 1], [0, 2], [1, 1]])
    >>> scores = genotype_scores(truth, np.array([[0, 0], [0, 1], [0, 1], [0, 1]]), edges=(0, 0.2, 0.5))
    >>> scores.concordance, scores.iqs
    (array([0.75, 0.75]), array([0.        , 0.55555556]))
    """
    known, called, mask = _read(truth, dosages, hidden)
    ends = np.asarray(edges, dtype=np.float64)
    if ends.ndim != 1 or ends.size < 2 or ends[0] != 0 or ends[-1] != 0.5 or np.any(np.diff(ends) <= 0):
        raise BadSetting(f"edges must rise from 0 to 0.5; got {list(edges)!r}")
    n_columns = known.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        frequency = np.nansum(known, axis=0) / (2.0 * np.count_nonzero(~np.isnan(known), axis=0))
    bins = np.searchsorted(ends[1:], np.minimum(frequency, 1.0 - frequency) - 1e-12)
    rows, columns = np.nonzero(mask)
    x, y = known[rows, columns], called[rows, columns]
    scores = _score_variants(x, y, columns, n_columns)
    counts = np.bincount(columns, minlength=n_columns)
    inside = [np.flatnonzero((bins == place) & (counts > 0)) for place in range(ends.size - 1)]
    means = [[_mean(score[own]) for own in inside] for score in scores]
    n_variants = np.array([own.size for own in inside])
    n_cells = np.array([int(counts[own].sum()) for own in inside])
    return GenotypeScores(ends[:-1], ends[1:], n_variants, n_cells, *map(np.array, means))


def _read(truth: Any, dosages: Any, hidden: Any) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    known, called = (np.asarray(table, dtype=np.float64) for table in (truth, dosages))
    if known.ndim != 2 or known.shape != called.shape:
        raise BadEntries(f"truth and dosages must be tables of one shape; got {known.shape} and {called.shape}")
    mask = ~np.isnan(known) if hidden is None else np.asarray(hidden, dtype=bool) & ~np.isnan(known)
    if not np.all(np.isin(known[~np.isnan(known)], (0.0, 1.0, 2.0))):
        raise BadEntries("genotypes must be 0, 1 or 2, the number of copies of an allele")
    if not mask.any():
        raise BadEntries("no cell of known truth is hidden, so there is nothing to score")
    if not np.all((called[mask] >= 0) & (called[mask] <= 2)):
        raise BadEntries("dosages of hidden cells must lie between 0 and 2")
    return known, called, mask


def _score_variants(
    truth: FloatArray, dosages: FloatArray, columns: npt.NDArray[np.intp], n_columns: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return concordance, r2 and IQS of each variant, (variants,), from its cells."""
    cells = _N_GENOTYPES * truth.astype(np.int64) + np.rint(dosages).astype(np.int64)
    width = _N_GENOTYPES * _N_GENOTYPES
    table = np.bincount(columns * width + cells, minlength=n_columns * width).astype(np.float64)
    table = table.reshape(n_columns, _N_GENOTYPES, _N_GENOTYPES)
    n = table.sum(axis=(1, 2))

    def add_up(values: FloatArray) -> FloatArray:
        return np.bincount(columns, values, minlength=n_columns).astype(np.float64)

    with np.errstate(invalid="ignore", divide="ignore"):
        agreement = np.trace(table, axis1=1, axis2=2) / n
        chance = (table.sum(axis=1) * table.sum(axis=2)).sum(axis=1) / np.square(n)
        means = add_up(truth) / n, add_up(dosages) / n
        own, other = truth - means[0][columns], dosages - means[1][columns]
        spreads = add_up(own * own) * add_up(other * other)
        r2 = np.where(spreads > 1e-12, np.square(add_up(own * other)) / spreads, np.nan)
        iqs = np.where(chance < 1.0 - 1e-12, (agreement - chance) / (1.0 - chance), np.nan)
    return agreement, r2, iqs


def _mean(scores: FloatArray) -> float:
    defined = scores[~np.isnan(scores)]
    return float(defined.mean()) if defined.size else float("nan")
