"""Metrics of predictions: errors, where 0 is perfect, and scores, where 1 is perfect.

Every pair (a row and a column) has the same weight. `scale_levels` are the K legal levels in increasing order, with any
spacing. A distribution holds one probability for each level, in that order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, OffScale, check_count

__all__ = [
    "calibration_error",
    "coverage_score",
    "hit_rate_score",
    "interval_coverage_score",
    "level_accuracy_score",
    "log_loss_error",
    "mae_error",
    "map_score",
    "mrr_score",
    "ndcg_score",
    "novelty_score",
    "precision_score",
    "quadratic_kappa_score",
    "ranked_probability_error",
    "recall_score",
    "rmse_error",
    "within_one_score",
]

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# Tolerance of the sum of a distribution: it allows float32 rounding, but not weights that are not normalised.
SUM_TOLERANCE = 1e-4


def rmse_error(predictions: npt.ArrayLike, values: npt.ArrayLike) -> float:
    """Return the root mean squared error, sqrt(mean((prediction - value)^2)), of two (pairs,) arrays.

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


def level_accuracy_score(predicted_levels: npt.ArrayLike, levels: npt.ArrayLike) -> float:
    """Return the share of pairs whose predicted level is exactly right, of two (pairs,) arrays.

    >>> level_accuracy_score([1, 4, 5, 2], [1, 4, 3, 3])
    0.5
    """
    predicted, actual = _check_finite_pairs(predicted_levels=predicted_levels, levels=levels)
    return float(np.mean(predicted == actual))


def within_one_score(predicted_levels: npt.ArrayLike, levels: npt.ArrayLike, *, scale_levels: npt.ArrayLike) -> float:
    """Return the share of pairs predicted at most one level position away, of two (pairs,) arrays of levels.

    >>> within_one_score([1, 10], [10, 1000], scale_levels=[1, 10, 100, 1000])
    0.5
    """
    predicted, actual = _find_level_positions(predicted_levels, levels, scale_levels)
    return float(np.mean(np.abs(predicted - actual) <= 1))


def quadratic_kappa_score(
    predicted_levels: npt.ArrayLike, levels: npt.ArrayLike, *, scale_levels: npt.ArrayLike
) -> float:
    """Return Cohen's kappa with quadratic weights on level positions, of two (pairs,) arrays of levels.

    With predicted positions p and actual positions q, 1 - mean_i (p_i - q_i)^2 / mean_ij (p_i - q_j)^2
    (Cohen 1968); agreement by chance gives 0. Where both sides are one and the same level throughout, the
    fraction is 0 / 0 and the score is defined as 1.0.

    >>> quadratic_kappa_score([1, 2, 2], [1, 2, 3], scale_levels=[1, 2, 3])
    0.6666666666666667
    >>> quadratic_kappa_score([4, 4], [4, 4], scale_levels=[1, 2, 3, 4])
    1.0
    """
    predicted, actual = _find_level_positions(predicted_levels, levels, scale_levels)
    observed = np.mean(np.square(predicted - actual))
    # The mean over all i and j is two variances and a squared bias; of constant integers, each is exact.
    expected = np.var(predicted) + np.var(actual) + np.square(np.mean(predicted) - np.mean(actual))
    return float(1.0 - observed / expected) if expected > 0 else 1.0


def log_loss_error(distributions: npt.ArrayLike, levels: npt.ArrayLike, *, scale_levels: npt.ArrayLike) -> float:
    """Return the mean of -ln P(actual level), of (pairs, K) distributions and (pairs,) levels.

    As in scikit-learn, probabilities are clipped to [eps, 1 - eps], eps being the machine epsilon of the
    floating type they are given in (float64 for everything else).

    >>> round(log_loss_error([[0.5, 0.5], [0.2, 0.8]], [1, 2], scale_levels=[1, 2]), 4)
    0.4581
    """
    probabilities, positions = _check_forecasts(distributions, levels, scale_levels)
    given_type = np.asarray(distributions).dtype
    eps = float(np.finfo(given_type if given_type.kind == "f" else np.float64).eps)
    of_actual = probabilities[np.arange(positions.size), positions]
    return float(-np.mean(np.log(np.clip(of_actual, eps, 1.0 - eps))))


def ranked_probability_error(
    distributions: npt.ArrayLike, levels: npt.ArrayLike, *, scale_levels: npt.ArrayLike
) -> float:
    """Return the mean ranked probability score, of (pairs, K) distributions and (pairs,) levels.

    For one pair, the sum over the K - 1 lowest levels k of (P(value <= k) - [value <= k])^2, divided by K - 1
    so that the worst is 1 (Epstein 1969, Murphy 1971); on a scale of one level the error is 0.

    >>> ranked_probability_error([[0.5, 0.5, 0], [0, 0, 1]], [1, 1], scale_levels=[1, 2, 3])
    0.5625
    """
    probabilities, positions = _check_forecasts(distributions, levels, scale_levels)
    n_pairs, n_levels = probabilities.shape
    predicted = np.cumsum(probabilities, axis=1)[:, :-1]
    actual = positions[:, None] <= np.arange(n_levels - 1)
    return float(np.sum(np.square(predicted - actual)) / (n_pairs * max(n_levels - 1, 1)))


def calibration_error(
    distributions: npt.ArrayLike, levels: npt.ArrayLike, *, scale_levels: npt.ArrayLike, bins: int = 15
) -> float:
    """Return the expected calibration error, of (pairs, K) distributions and (pairs,) levels.

    Each of the pairs x K probabilities p forecasts "the value is that level"; its outcome o is 1 or 0. All
    share one set of equal-width bins: p lies in bin floor(p * bins), 1 in the last. The error is the sum over
    bins of (forecasts in the bin / all forecasts) * |mean p - mean o|, both means within the bin; an empty
    bin adds 0 (Naeini, Cooper and Hauskrecht 2015, here over all levels and not the likeliest alone).

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


def interval_coverage_score(lower: npt.ArrayLike, upper: npt.ArrayLike, values: npt.ArrayLike) -> float:
    """Return the share of pairs with lower <= value <= upper, of three (pairs,) arrays; ends may be infinite.

    >>> interval_coverage_score([1, 2], [3, 4], [3, 5])
    0.5
    """
    low, high, actual = _check_pairs(lower=lower, upper=upper, values=values)
    if np.any(low > high):
        pair = int(np.argmax(low > high))
        ends = f"lower[{pair}] is {low[pair]:.15g} and upper[{pair}] is {high[pair]:.15g}"
        raise BadEntries(f"{ends}; lower must not be above upper")
    return float(np.mean((low <= actual) & (actual <= high)))


def ndcg_score(relevances: npt.ArrayLike, predictions: npt.ArrayLike, *, n: int) -> float:
    """Return the mean normalised discounted cumulative gain at n, of two (items,) or (lists, items) arrays.

    DCG@n is the sum over ranks r = 1..n, highest prediction first, of relevance / log2(1 + r); it is divided
    by the DCG@n of the best possible ranking (Järvelin and Kekäläinen 2002, with the linear gain of
    scikit-learn). Of equal predictions the earlier item ranks first; -inf ranks an item last. A list shorter
    than n counts whole. A list whose relevances are all 0 scores 0, as in scikit-learn.

    >>> ndcg_score([3, 0, 1], [0.9, 0.1, 0.5], n=2)
    1.0
    >>> round(ndcg_score([[3, 0, 1], [0, 0, 2]], [[0.9, 0.1, 0.5], [0.9, 0.1, 0.5]], n=2), 4)
    0.8155
    """
    check_count("n", n)
    gains, predicted = _check_lists(relevances=relevances, predictions=predictions)
    _check_none(np.isinf(gains) | (gains < 0), gains, "relevances", "relevances must be finite and at least 0")
    gains, predicted = np.atleast_2d(gains, predicted)
    found = _compute_gain(gains, by=predicted, n=n)
    ideal = _compute_gain(gains, by=gains, n=n)
    return float(np.mean(np.divide(found, ideal, out=np.zeros_like(found), where=ideal > 0)))


def recall_score(relevant: npt.ArrayLike, predictions: npt.ArrayLike, *, n: int) -> float:
    """Return the mean recall at n, of two (items,) or (lists, items) arrays.

    The recall of a list is (relevant items among its n best predicted) / (its relevant items, even if more
    than n); `relevant` is boolean. Of equal predictions the earlier item ranks first; -inf ranks an item
    last. Lists without a relevant item are left out of the mean, and at least one list must have one.

    >>> recall_score([True, False, True], [0.9, 0.5, 0.1], n=2)
    0.5
    >>> recall_score([[True, False], [False, False]], [[0.9, 0.5], [0.9, 0.5]], n=1)
    1.0
    """
    return float(np.mean(_score_ranked_lists(relevant, predictions, n).recall))


def precision_score(relevant: npt.ArrayLike, predictions: npt.ArrayLike, *, n: int) -> float:
    """Return the mean precision at n, of two (items,) or (lists, items) arrays.

    The precision of a list is (relevant items among its n best predicted) / n, also where it has fewer than n items.
    Ties, -inf and lists without a relevant item are treated as by `recall_score`.

    >>> precision_score([True, False, True], [0.9, 0.5, 0.1], n=2)
    0.5
    """
    return float(np.mean(_score_ranked_lists(relevant, predictions, n).precision))


def hit_rate_score(relevant: npt.ArrayLike, predictions: npt.ArrayLike, *, n: int) -> float:
    """Return the share of lists with a relevant item among their n best, of two (items,) or (lists, items) arrays.

    Ties, -inf and lists without a relevant item are treated as by `recall_score`.

    >>> hit_rate_score([[True, False], [False, True]], [[0.9, 0.5], [0.9, 0.5]], n=1)
    0.5
    """
    return float(np.mean(_score_ranked_lists(relevant, predictions, n).hit_rate))


def mrr_score(relevant: npt.ArrayLike, predictions: npt.ArrayLike, *, n: int) -> float:
    """Return the mean reciprocal rank at n, of two (items,) or (lists, items) arrays.

    The reciprocal rank of a list is 1 / (rank of its first relevant item), 0 if none of its n best is relevant.
    Ties, -inf and lists without a relevant item are treated as by `recall_score`.

    >>> mrr_score([[True, False], [False, True]], [[0.9, 0.5], [0.9, 0.5]], n=2)
    0.75
    """
    return float(np.mean(_score_ranked_lists(relevant, predictions, n).mrr))


def map_score(relevant: npt.ArrayLike, predictions: npt.ArrayLike, *, n: int) -> float:
    """Return the mean average precision at n, of two (items,) or (lists, items) arrays.

    The average precision of a list is the sum over its relevant items among the n best of the precision at their rank,
    divided by the number of its relevant items, even if more than n (as in trec_eval's map_cut).
    Ties, -inf and lists without a relevant item are treated as by `recall_score`.

    >>> map_score([True, False, True], [0.9, 0.5, 0.1], n=3)
    0.8333333333333333
    """
    return float(np.mean(_score_ranked_lists(relevant, predictions, n).map))


def coverage_score(recommended: npt.ArrayLike, *, n_columns: int) -> float:
    """Return the share of all columns that is recommended at least once, of an array of column positions.

    Negative positions are empty places.

    >>> coverage_score([[0, 1], [1, -1]], n_columns=4)
    0.5
    """
    check_count("n_columns", n_columns)
    positions = _check_positions(recommended, n_columns)
    return float(np.unique(positions).size / n_columns)


def novelty_score(recommended: npt.ArrayLike, column_counts: npt.ArrayLike, *, n_rows: int) -> float:
    """Return the mean self-information in bits of recommended columns, of an array of column positions.

    The self-information of a column is -log2(rows that have an entry in it / all rows) (Zhou et al. 2010); a column
    without entries counts as one with a single entry. Negative positions are empty places.

    >>> novelty_score([[0, 1]], [8, 2], n_rows=8)
    1.0
    """
    check_count("n_rows", n_rows)
    counts = _to_numbers(column_counts, "column_counts")
    _check_none((counts < 0) | (counts > n_rows), counts, "column_counts", f"there are {n_rows} rows")
    return float(np.mean(self_information(counts, n_rows)[_check_positions(recommended, counts.size)]))


def self_information(column_counts: npt.NDArray[Any], n_rows: int) -> FloatArray:
    """Return the self-information in bits of each column, as in `novelty_score`."""
    information: FloatArray = -np.log2(np.maximum(column_counts, 1) / n_rows)
    return information


class ListScores(NamedTuple):
    """Scores of ranked lists, each (lists,); the hit rate of a list is 0 or 1."""

    ndcg: FloatArray
    recall: FloatArray
    precision: FloatArray
    mrr: FloatArray
    map: FloatArray
    hit_rate: FloatArray


def score_lists(hits: npt.NDArray[np.bool_], n_relevant: npt.NDArray[np.integer], *, n: int) -> ListScores:
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


def _score_ranked_lists(relevant: npt.ArrayLike, predictions: npt.ArrayLike, n: int) -> ListScores:
    check_count("n", n)
    flags, predicted = _check_lists(relevant=relevant, predictions=predictions)
    _check_none((flags != 0) & (flags != 1), flags, "relevant", "give booleans, as in relevant=values >= 4")
    flags, predicted = np.atleast_2d(flags, predicted)
    n_relevant = flags.sum(axis=1).astype(np.int64)
    counted = n_relevant > 0
    if not np.any(counted):
        raise BadEntries(f"relevant has no True in any of {len(flags)} lists; at least one needs a relevant item")
    hits = np.take_along_axis(flags, _rank_items(predicted, n), axis=1) > 0
    return score_lists(hits[counted], n_relevant[counted], n=n)


def _check_positions(recommended: npt.ArrayLike, n_columns: int) -> IndexArray:
    """Return the columns at the filled places of lists, (places,)."""
    given = _to_numbers(recommended, "recommended")
    _check_none((given >= n_columns) | (given % 1 != 0), given, "recommended", f"positions are below {n_columns}")
    if np.all(given < 0):
        raise BadEntries(f"recommended has only empty places, in the shape {given.shape}; it needs at least one column")
    return given[given >= 0].astype(np.intp)


def _compute_gain(gains: FloatArray, *, by: FloatArray, n: int) -> FloatArray:
    """Return the DCG@n (lists,) of gains (lists, items) ranked by the highest of `by` (lists, items)."""
    ranked = np.take_along_axis(gains, _rank_items(by, n), axis=1)
    discounted: FloatArray = np.sum(ranked / np.log2(np.arange(2, ranked.shape[1] + 2)), axis=1)
    return discounted


def _rank_items(predictions: FloatArray, n: int) -> IndexArray:
    """Return the positions (lists, n) of the highest predictions (lists, items), equal ones in order."""
    return np.argsort(-predictions, axis=1, kind="stable")[:, :n]


def _check_forecasts(
    distributions: npt.ArrayLike, levels: npt.ArrayLike, scale_levels: npt.ArrayLike
) -> tuple[FloatArray, IndexArray]:
    """Return checked probabilities (pairs, K) and the position (pairs,) of each actual level."""
    scale = _check_scale(scale_levels)
    probabilities = _to_numbers(distributions, "distributions")
    (actual,) = _check_pairs(levels=levels)
    if probabilities.shape != (actual.size, scale.size):
        raise BadEntries(
            f"distributions has shape {probabilities.shape}; {actual.size} pairs and {scale.size} levels "
            f"need ({actual.size}, {scale.size})"
        )
    _check_none(probabilities < 0, probabilities, "distributions", "no probability may be negative")
    sums = probabilities.sum(axis=1)
    _check_none(np.abs(sums - 1.0) > SUM_TOLERANCE, sums, "sum of distributions", "each sum must be 1")
    return probabilities, _find_positions(actual, scale, "levels")


def _find_level_positions(
    predicted_levels: npt.ArrayLike, levels: npt.ArrayLike, scale_levels: npt.ArrayLike
) -> tuple[IndexArray, IndexArray]:
    """Return the positions (pairs,) of predicted and of actual levels among the levels of the scale."""
    scale = _check_scale(scale_levels)
    predicted, actual = _check_pairs(predicted_levels=predicted_levels, levels=levels)
    return _find_positions(predicted, scale, "predicted_levels"), _find_positions(actual, scale, "levels")


def _find_positions(values: FloatArray, scale: FloatArray, name: str) -> IndexArray:
    positions = np.searchsorted(scale[:-1], values)
    legal = ", ".join(f"{level:.15g}" for level in scale)
    _check_none(scale[positions] != values, values, name, f"the levels are {legal}", error=OffScale)
    return positions


def _check_finite_pairs(**named: npt.ArrayLike) -> list[FloatArray]:
    """Return the named arguments as finite arrays of one shape (pairs,)."""
    arrays = _check_pairs(**named)
    for name, array in zip(named, arrays, strict=True):
        _check_none(np.isinf(array), array, name, "only finite numbers can be compared")
    return arrays


def _check_pairs(**named: npt.ArrayLike) -> list[FloatArray]:
    """Return the named arguments as arrays of one shape (pairs,), without NaN."""
    return _check_alike(named, dimensions=(1,), wanted="(pairs,)")


def _check_lists(**named: npt.ArrayLike) -> list[FloatArray]:
    """Return the named arguments as arrays of one shape, (items,) or (lists, items), without NaN."""
    return _check_alike(named, dimensions=(1, 2), wanted="(items,) or (lists, items)")


def _check_alike(named: dict[str, npt.ArrayLike], *, dimensions: tuple[int, ...], wanted: str) -> list[FloatArray]:
    arrays = [_to_numbers(values, name) for name, values in named.items()]
    shape = arrays[0].shape
    if len(shape) not in dimensions or any(array.shape != shape for array in arrays):
        given = ", ".join(f"{name} {array.shape}" for name, array in zip(named, arrays, strict=True))
        raise BadEntries(f"got the shapes {given}; every shape must be the same {wanted}")
    return arrays


def _to_numbers(values: npt.ArrayLike, name: str) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadEntries(f"{name} must be an array of numbers; got {values!r}") from error
    if array.size == 0:
        raise BadEntries(f"{name} is empty, of shape {array.shape}; a metric needs at least one number")
    _check_none(np.isnan(array), array, name, "leave missing entries out")
    return array


def _check_scale(scale_levels: npt.ArrayLike) -> FloatArray:
    wanted = f"scale_levels must be finite and increasing, as in [1, 2, 3]; got {scale_levels!r}"
    try:
        scale = np.asarray(scale_levels, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadSetting(wanted) from error
    if scale.ndim != 1 or scale.size == 0 or not np.all(np.isfinite(scale)) or np.any(np.diff(scale) <= 0):
        raise BadSetting(wanted)
    return scale


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
