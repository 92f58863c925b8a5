"""Metrics of predictions: errors, where 0 is perfect, and scores, where 1 is perfect.

Every pair (a row and a column) has the same weight. `scale_levels` are the K legal levels in
increasing order, with any spacing. A distribution holds one probability for each level, in that
order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, OffScale, check_count

__all__ = [
    "ListScores",
    "calibration_error",
    "interval_coverage_score",
    "mae_error",
    "rmse_error",
    "score_lists",
]

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# Tolerance of the sum of a distribution: it allows float32 rounding, but not weights that are not
# normalised.
SUM_TOLERANCE = 1e-4


def rmse_error(predictions: npt.ArrayLike, values: npt.ArrayLike) -> float:
    """Return the root mean squared error, sqrt(mean((prediction - value)^2)), of two (pairs,)
    arrays.

    >>> rmse_error([3, 5], [3, 3])
    1.4142135623730951
    """
    predicted, actual = _check_finite_pairs(predictions=predictions, values=values)
    return float(np.sqrt(np.mean(np.square(predicted - actual))))


def mae_error(predictions: npt.ArrayLike, values: npt.ArrayLike) -> float:
    """Return the mean absolute error, mean(|prediction - value|), of two (pairs,) arrays.

    >>> mae_error([3, 5], [3, 3])
    1.0
    """
    predicted, actual = _check_finite_pairs(predictions=predictions, values=values)
    return float(np.mean(np.abs(predicted - actual)))


def calibration_error(
    distributions: npt.ArrayLike,
    levels: npt.ArrayLike,
    *,
    scale_levels: npt.ArrayLike,
    bins: int = 15,
) -> float:
    """Return the expected calibration error, of (pairs, K) distributions and (pairs,) levels.

    Each of the pairs x K probabilities p forecasts "the value is that level"; its outcome o is 1 or
    0. All share one set of equal-width bins: p lies in bin floor(p * bins), 1 in the last. The
    error is the sum over bins of (forecasts in the bin / all forecasts) * |mean p - mean o|, both
    means within the bin; an empty bin adds 0 (Naeini, Cooper and Hauskrecht 2015, here over all
    levels and not the likeliest alone).

    >>> calibration_error([[0.75, 0.25]] * 4, [1, 1, 1, 2], scale_levels=[1, 2])
    0.0
    >>> calibration_error([[0.75, 0.25]] * 4, [1, 1, 2, 2], scale_levels=[1, 2])
    0.25
    """
    check_count("bins", bins)
    probabilities, positions = _check_forecasts(distributions, levels, scale_levels)
    outcomes = positions[:, None] == np.arange(probabilities.shape[1])
    bin_of_each = np.minimum((probabilities * bins).astype(np.intp), bins - 1)
    # Weighted by its share, a bin's |mean p - mean o| is |sum of (p - o)| / all forecasts.
    gaps = np.bincount(bin_of_each.ravel(), weights=(probabilities - outcomes).ravel())
    return float(np.sum(np.abs(gaps)) / probabilities.size)


def interval_coverage_score(
    lower: npt.ArrayLike, upper: npt.ArrayLike, values: npt.ArrayLike
) -> float:
    """Return the share of pairs with lower <= value <= upper, of three (pairs,) arrays; ends may be
    infinite.

    >>> interval_coverage_score([1, 2], [3, 4], [3, 5])
    0.5
    """
    low, high, actual = _check_pairs(lower=lower, upper=upper, values=values)
    if np.any(low > high):
        pair = int(np.argmax(low > high))
        ends = f"lower[{pair}] is {low[pair]:.15g} and upper[{pair}] is {high[pair]:.15g}"
        raise BadEntries(f"{ends}; lower must not be above upper")
    return float(np.mean((low <= actual) & (actual <= high)))


def self_information(column_counts: npt.NDArray[Any], n_rows: int) -> FloatArray:
    """Return the self-information of each column in bits, -log2(rows with an entry / all rows)
    (Zhou et al. 2010).

    A column without entries counts as one with a single entry.
    """
    information: FloatArray = -np.log2(np.maximum(column_counts, 1) / n_rows)
    return information


class ListScores(NamedTuple):
    """Scores of ranked lists at n, each (lists,).

    Attributes
    ----------
    ndcg : the sum over relevant items of 1 / log2(1 + rank), divided by that of the best list
        (Järvelin and Kekäläinen 2002).
    recall : listed relevant items / all relevant items, even if more than n.
    precision : listed relevant items / n, also where a list is shorter.
    mrr : 1 / (rank of the first relevant item), 0 if none is listed.
    map : the precision at the rank of each listed relevant item, summed and divided by all relevant
        items (as in trec_eval's map_cut).
    hit_rate : whether any relevant item is listed, 0 or 1.
    """

    ndcg: FloatArray
    recall: FloatArray
    precision: FloatArray
    mrr: FloatArray
    map: FloatArray
    hit_rate: FloatArray


def score_lists(
    hits: npt.NDArray[np.bool_], n_relevant: npt.NDArray[np.integer], *, n: int
) -> ListScores:
    """Return the scores at n of ranked lists.

    Parameters
    ----------
    hits : whether each of the best items of a list, at most n, is relevant, (lists, items).
    n_relevant : number of relevant items of each list, at least 1, (lists,).
    n : length of the lists. The gain of a relevant item is 1 for NDCG.

    >>> score_lists(np.array([[False, True]]), np.array([1]), n=2).ndcg.round(4)
    array([0.6309])
    """
    width = hits.shape[1]
    longest = max(width, int(np.minimum(n_relevant, n).max()))
    discounts = 1.0 / np.log2(np.arange(2, longest + 2))
    ideal = np.cumsum(discounts)[np.minimum(n_relevant, n) - 1]
    found_so_far = np.cumsum(hits, axis=1)
    n_found = found_so_far[:, -1]
    is_hit = n_found > 0
    reciprocals = 1.0 / np.arange(1, width + 1)
    return ListScores(
        ndcg=hits @ discounts[:width] / ideal,
        recall=n_found / n_relevant,
        precision=n_found / n,
        mrr=np.where(is_hit, reciprocals[np.argmax(hits, axis=1)], 0.0),
        map=np.sum(hits * found_so_far * reciprocals, axis=1) / n_relevant,
        hit_rate=is_hit.astype(np.float64),
    )


def _check_forecasts(
    distributions: npt.ArrayLike, levels: npt.ArrayLike, scale_levels: npt.ArrayLike
) -> tuple[FloatArray, IndexArray]:
    """Return checked probabilities (pairs, K) and the position (pairs,) of each actual level."""
    scale, probabilities = (
        _to_numbers(scale_levels, "scale_levels"),
        _to_numbers(distributions, "distributions"),
    )
    if scale.ndim != 1 or not np.all(np.isfinite(scale)) or np.any(np.diff(scale) <= 0):
        raise BadSetting(
            f"scale_levels must be finite and increasing, as in [1, 2, 3]; got {scale_levels!r}"
        )
    (actual,) = _check_pairs(levels=levels)
    if probabilities.shape != (actual.size, scale.size):
        raise BadEntries(
            f"distributions has shape {probabilities.shape}; {actual.size} pairs and {scale.size} levels "
            f"need ({actual.size}, {scale.size})"
        )
    _check_none(probabilities < 0, probabilities, "distributions", "no probability may be negative")
    sums = probabilities.sum(axis=1)
    _check_none(
        np.abs(sums - 1.0) > SUM_TOLERANCE, sums, "sum of distributions", "each sum must be 1"
    )
    positions = np.searchsorted(scale[:-1], actual)
    legal = ", ".join(f"{level:.15g}" for level in scale)
    _check_none(
        scale[positions] != actual, actual, "levels", f"the levels are {legal}", error=OffScale
    )
    return probabilities, positions


def _check_finite_pairs(**named: npt.ArrayLike) -> list[FloatArray]:
    """Return the named arguments as finite arrays of one shape (pairs,)."""
    arrays = _check_pairs(**named)
    for name, array in zip(named, arrays, strict=True):
        _check_none(np.isinf(array), array, name, "only finite numbers can be compared")
    return arrays


def _check_pairs(**named: npt.ArrayLike) -> list[FloatArray]:
    """Return the named arguments as arrays of one shape (pairs,), without NaN."""
    arrays = [_to_numbers(values, name) for name, values in named.items()]
    shape = arrays[0].shape
    if len(shape) != 1 or any(array.shape != shape for array in arrays):
        shapes = ", ".join(
            f"{name} {array.shape}" for name, array in zip(named, arrays, strict=True)
        )
        raise BadEntries(f"got the shapes {shapes}; every shape must be the same (pairs,)")
    return arrays


def _to_numbers(values: npt.ArrayLike, name: str) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadEntries(f"{name} must be an array of numbers; got {values!r}") from error
    if array.size == 0:
        raise BadEntries(
            f"{name} is empty, of shape {array.shape}; a metric needs at least one number"
        )
    _check_none(np.isnan(array), array, name, "leave missing entries out")
    return array


def _check_none(
    bad: npt.NDArray[np.bool_],
    array: FloatArray,
    name: str,
    rule: str,
    *,
    error: type[BadEntries] = BadEntries,
) -> None:
    if np.any(bad):
        first = np.unravel_index(np.argmax(bad), array.shape)
        where = ", ".join(str(position) for position in first)
        raise error(f"{name}[{where}] is {array[first]:.15g}; {rule}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
