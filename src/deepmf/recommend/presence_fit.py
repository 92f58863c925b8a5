"""How `fit` chooses the presence part: its penalty and the weights of relevance, by rankings of
hidden entries."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from scipy.special import expit

from deepmf.errors import TrainingDiverged
from deepmf.linalg.largest import find_largest
from deepmf.matrix.arrays import BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries, PlacedEntries, find_spans, locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import PLAIN_EXTRAS, Extras
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import score_lists
from deepmf.recommend.column_gram import MOST_FULL, RIDGES, Gram, round_weights
from deepmf.recommend.column_ridge import ColumnRidge, Ridge, read_rows, to_dense
from deepmf.recommend.presence import Presence, make_positive, share_rows
from deepmf.recommend.presence_odds import calibrate_odds
from deepmf.recommend.ranker import find_relevant
from deepmf.scoring.learning import Learning
from deepmf.scoring.predictor import Predictor
from deepmf.training.devices import find_device
from deepmf.training.holdout import HeldOut, choose, draw_some

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

# Columns that are candidates, at most: popular ones are drawn more often.
_MOST_CANDIDATES = 1 << 10

# Rows on which the parts of relevance are chosen, at most, and their cells: 4 MB for each table.
_MOST_ROWS = 1000
_MOST_CELLS = 1 << 20

# Cells without an entry on which probabilities are calibrated.
_CALIBRATION_CELLS = 1 << 18

# Steps of Newton's method, at most; a few are enough unless scores separate the entries.
_CALIBRATION_STEPS = 25

# Hidden entries without which popularity alone ranks columns.
_FEWEST_HIDDEN = 20

# Validation entries that are enough; with fewer, this share of the entries of some rows is hidden.
_ENOUGH_HIDDEN = 20_000
_HIDDEN_SHARE = 0.2

# The most entries of a matrix whose rows and columns are all encoded again without the hidden ones.
_FEW_ENTRIES = 1 << 18

# Columns of each row, by presence, among which powers of popularity are compared, and more for
# weights of liking, which moves columns further.
_SHORTLIST = 150
_LONG_LIST = 250

# The length of a ranking.
_LENGTH = 10

# What is compared on hidden entries, in the terms of `Presence`.
_POPULARITY_SHARES = (0.0, 0.1, 1.0)
_POPULARITY_POWERS = (-0.4, -0.3, -0.2, -0.1, 0.0, 0.1)
_LIKING_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)  # in powers of scores
_USUAL_LIKING_WEIGHT = 0.75
_COUNT_WEIGHTS = (0.0, 0.5, 2.0)  # of interactions
_LOW_PASS_SHARES = (0.2, 0.0, 0.35)  # the usual one first

# A share so large that scores are popularity alone, also in single precision.
_ALL_POPULARITY = 1e9


def fit_presence(learning: Learning) -> dict[str, Presence]:
    """Fit the presence part of a model with the setting `presence`; none if every cell has an entry.

    Penalty and weights are chosen by the NDCG of rankings of validation entries. With few
    validation entries, a fifth of the entries of some rows is hidden instead, and these rows are
    encoded again without them. With too few of these, columns are ranked by popularity.
    """
    entries, predictor, validation = learning.entries, learning.predictor, learning.held_out
    train, folds_in = entries.train, learning.folds_in
    kind: str | None = learning.settings.get("presence")
    n_rows, n_columns = train.shape
    if kind is None or train.n_entries == n_rows * n_columns:
        return {}
    if kind == "auto":
        kind = "full" if n_columns <= MOST_FULL else "nearest"
    seed, gpu = learning.settings["seed"], find_gpu(learning.device)
    held_out = (
        HiddenRows.from_validation(entries, predictor, validation, seed)
        if validation is not None
        and validation.rows.size >= (_ENOUGH_HIDDEN if folds_in else _FEWEST_HIDDEN)
        else (HiddenRows.from_training(entries, predictor, seed) if folds_in else None)
    )
    if held_out is None:
        spread = max(_measure_root_mean_square(train.values.astype(np.float64) - train.mean), 1e-9)
        (model,) = Gram.of(train, kind, gpu=gpu).fit(RIDGES[kind][:1])
        log_odds = -math.log(_ALL_POPULARITY)  # an entry exists with odds of the popularity
        popularity = Presence(
            model, log_odds, popularity_share=_ALL_POPULARITY, liking_weight=0.0, spread=spread
        )
        return {"presence": _calibrate_odds(popularity, train, seed)}
    best = _Choice(held_out, gpu).fit(kind)
    presence = replace(best, model=fit_again(best.model, train, gpu))
    return {"presence": _calibrate_odds(presence, train, seed)}


def _calibrate_odds(presence: Presence, train: ObservedMatrix, seed: int) -> Presence:
    every_column = np.arange(train.shape[1])
    return calibrate_odds(presence, train, every_column, presence.model.score, seed=seed)


def find_gpu(device: str) -> torch.device | None:
    """Return the GPU that a device names; None for the CPU, which needs no torch."""
    fit_device = find_device(device)
    if fit_device == "cpu":
        return None
    import torch

    return torch.device(fit_device)


def fit_again(model: ColumnRidge, train: ObservedMatrix, gpu: torch.device | None) -> ColumnRidge:
    """Return the model of another matrix with the same settings."""
    (fitted,) = Gram.of(train, model.kind, model.count_weight, gpu).fit([model.ridge])
    share = model.ridge.low_pass
    return _add_filter(fitted, train, gpu, [share])[0] if share else fitted


def _add_filter(
    model: ColumnRidge,
    train: ObservedMatrix,
    gpu: torch.device | None,
    shares: Sequence[float],
    columns: IndexArray | None = None,
) -> list[ColumnRidge]:
    """Return models of some columns in whose weights a low-pass filter, to which all rows are as
    important, has some shares."""
    gram = Gram.of(train, "full", model.count_weight, gpu, power=1.0, columns=columns)
    passed = gram.pass_low()
    blends = ((1.0 - share) * model.weights + share * passed for share in shares)
    return [
        replace(model, weights=round_weights(blend), ridge=model.ridge._replace(low_pass=share))
        for blend, share in zip(blends, shares, strict=True)
    ]


@dataclass(frozen=True)
class HiddenRows:
    """Rows some of whose entries are hidden.

    train: the training matrix without the hidden entries, which presence models are fitted to.
    predictor: a predictor whose only rows are these.
    visible: their other entries, over the trained columns.
    hidden: the hidden entries, by indices of these rows and positions of columns.
    extras: the times and places of the hidden entries, if known.
    """

    train: ObservedMatrix
    predictor: Predictor
    visible: AxisEntries
    hidden: HeldOut
    extras: Extras = PLAIN_EXTRAS

    @classmethod
    def from_validation(
        cls,
        entries: EntryStore,
        predictor: Predictor,
        validation: PlacedEntries,
        seed: int,
        most: int | None = None,
    ) -> HiddenRows:
        """Hide the validation entries of the most rows, which are not among the entries of the
        model anyway."""
        rows = draw_some(np.unique(validation.rows), most or _count_rows(entries.train), seed=seed)
        lines = np.minimum(np.searchsorted(rows, validation.rows), rows.size - 1)
        is_kept = rows[lines] == validation.rows
        row_predictor = predictor.take_rows(rows)
        hidden = HeldOut(lines[is_kept], validation.columns[is_kept], validation.values[is_kept])
        return cls(
            entries.train,
            row_predictor,
            entries.row_entries(rows),
            hidden,
            validation.extras.take(is_kept),
        )

    @classmethod
    def from_training(
        cls,
        entries: EntryStore,
        predictor: Predictor,
        seed: int,
        *,
        last: bool = False,
        most: int | None = None,
    ) -> HiddenRows | None:
        """Hide a share of the entries of some rows, at least one, and encode these from the others.

        None if there are too few. last: hide the latest entry of each row alone; an interaction
        that was counted before stays visible, as the first one of the row. most: the number of
        rows.

        If the hidden entries are a large share of all entries, all rows and columns are encoded
        again without them: latents that were learned from hidden entries reveal which columns their
        rows like, and the weight of liking would be too large.
        """
        train = entries.train
        rows = draw_some(
            np.flatnonzero(train.row_counts > 1), most or _count_rows(train), seed=seed
        )
        if (rows.size if last else train.row_counts[rows].sum() * _HIDDEN_SHARE) < _FEWEST_HIDDEN:
            return None
        all_entries = entries.row_entries(rows)
        counts, lines = np.diff(all_entries.starts), all_entries.group_of
        by_order = (
            all_entries.extras.sort_within(lines)
            if last
            else np.lexsort((-np.random.default_rng(seed).random(lines.size), lines))
        )
        # from the end of the row in this order
        place = all_entries.starts[lines + 1] - 1 - np.argsort(by_order)
        hidden = place < (1 if last else np.maximum(np.round(_HIDDEN_SHARE * counts), 1)[lines])
        visible = all_entries.select(~hidden)
        is_repeated = (
            hidden & (all_entries.values > 1) if last and not train.has_values else hidden & False
        )
        known_entries = (
            all_entries.move_first(is_repeated).select(~hidden | is_repeated)
            if is_repeated.any()
            else visible
        )
        is_kept = np.ones(train.n_entries, dtype=bool)
        is_kept[find_spans(rows, train.by_row.starts)[0][hidden]] = False
        if train.n_entries <= _FEW_ENTRIES:
            by_row = entries.row_entries(np.arange(train.shape[0])).select(is_kept)
            by_column = entries.column_entries(np.arange(train.shape[1])).select(
                is_kept[train.by_column.entries]
            )
            # With next to no penalty, latents of fewer entries may grow beyond all bounds; then the
            # old ones stay.
            with (
                np.errstate(over="ignore", invalid="ignore"),
                contextlib.suppress(TrainingDiverged),
            ):
                predictor = (
                    predictor.with_only("column", by_column)
                    .with_only("row", by_row)
                    .with_only("column", by_column)
                )
        return cls(
            train.take_entries(np.flatnonzero(is_kept)),
            predictor.with_only("row", visible),
            known_entries,
            HeldOut(lines[hidden], all_entries.others[hidden], all_entries.values[hidden]),
            all_entries.extras.take(hidden),
        )

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.visible.starts.size) - 1


def score_columns(model: ColumnRidge, entries: AxisEntries, columns: IndexArray) -> LatentArray:
    """Return the scores (rows, columns) of some columns by a model of all columns, or of these
    alone."""
    if model.n_trained == columns.size:
        at, inside = locate(columns, entries.others)
        entries = entries.select(inside)._replace(others=at[inside])
        columns = np.arange(columns.size)
    rows = read_rows(entries, model.n_trained, model.count_weight)
    return to_dense(rows @ model.take_weights(columns))


def _count_rows(train: ObservedMatrix) -> int:
    return min(_MOST_ROWS, max(_MOST_CELLS // min(train.shape[1], _MOST_CANDIDATES), 1))


class _Choice:
    """Chooses how presence and liking are combined, by NDCG@10 on hidden entries.

    Candidates are some columns, popular ones rather than others; liked are hidden entries of at
    least the row's own mean, rounded up.
    """

    def __init__(self, held_out: HiddenRows, gpu: torch.device | None) -> None:
        train = held_out.train
        self._held_out, self._visible, self._gpu = held_out, held_out.visible, gpu
        counts = EntryStore.of(train).column_totals
        self._candidates = np.arange(counts.size)
        if counts.size > _MOST_CANDIDATES:
            shares = (counts + 1e-6) / (counts + 1e-6).sum()
            sample = np.random.default_rng(0).choice(
                counts.size, _MOST_CANDIDATES, replace=False, p=shares
            )
            self._candidates = np.sort(sample)
        self._popularity = share_rows(counts[self._candidates], train.shape[0])
        scores = held_out.predictor.score_pairs(held_out.hidden.rows, held_out.hidden.columns)
        residuals = held_out.predictor.readout.units(scores) - held_out.hidden.values
        least = max(1e-3 * (train.scale.high - train.scale.low), 1e-9)
        self._spread = max(_measure_root_mean_square(residuals), least)
        lines = np.arange(held_out.n_rows)
        relevant = find_relevant(train) or 0.0
        self._hidden = self._mark(held_out.hidden.rows, held_out.hidden.columns)
        self._known = self._mark(held_out.visible.group_of, held_out.visible.others)
        liked = held_out.hidden.values >= relevant
        self._n_liked = np.bincount(held_out.hidden.rows[liked], minlength=held_out.n_rows)
        self._liked = self._mark(held_out.hidden.rows[liked], held_out.hidden.columns[liked])
        log_liked = held_out.predictor.log_exceed_block(
            lines, self._candidates, np.full(lines.size, relevant), spread=self._spread
        )
        self._log_liked = log_liked.astype(np.float32)

    def fit(self, kind: str) -> Presence:
        """Return a presence part of a kind, with the best penalty, weights of counts, popularity
        and liking; its model scores candidates alone."""
        train = self._held_out.train
        best = _choose(self._regress(kind, RIDGES[kind], 0.0), self._measure_scores)
        if not train.has_values and np.max(train.values) > 1:
            candidates = [best]
            for weight in _COUNT_WEIGHTS[1:]:
                candidates += self._regress(kind, [best.model.ridge], weight)
            best = _choose(candidates, self._measure_scores)
        if kind == "full":
            blends = _add_filter(best.model, train, self._gpu, _LOW_PASS_SHARES, self._candidates)
            best = _choose([*map(self._score, blends)], self._measure_scores)
        return self._combine(best)

    def _score(self, model: ColumnRidge) -> _Scored:
        """Return a model and its scores; popularity ranks the columns of rows without entries."""
        scores = score_columns(model, self._visible, self._candidates)
        scores[np.diff(self._visible.starts) == 0] = self._popularity
        return _Scored(model, scores)

    def _regress(self, kind: str, ridges: Sequence[Ridge], count_weight: float) -> list[_Scored]:
        """Return models of the candidates, of all candidates or of nearest columns, and their
        scores."""
        train, gpu, candidates = self._held_out.train, self._gpu, self._candidates
        if kind == "full":
            models = Gram.of(train, kind, count_weight, gpu, columns=candidates).fit(ridges)
        else:
            models = Gram.of(train, kind, count_weight, gpu).fit(ridges, candidates)
        return [self._score(model) for model in models]

    def _measure_scores(self, scored: _Scored) -> FloatArray:
        presence = Presence(scored.model, liking_weight=_USUAL_LIKING_WEIGHT)
        return self._measure(presence, self._list(scored.scores, _SHORTLIST))

    def _combine(self, scored: _Scored) -> Presence:
        """Return a model with the best weights of popularity and liking; popularity if it ranks as
        well."""
        model, scores = scored
        best = Presence(model, spread=self._spread, liking_weight=_USUAL_LIKING_WEIGHT)
        lists = self._list(scores, _LONG_LIST)
        # the filter of a full model follows popularity as far as it helps
        shares = _POPULARITY_SHARES if model.kind == "nearest" else _POPULARITY_SHARES[:1]
        for name, values in (
            ("popularity_share", shares),
            ("popularity_power", _POPULARITY_POWERS),
        ):
            trials: list[Presence] = [replace(best, **{name: value}) for value in values]  # type: ignore[arg-type]
            best = _choose(
                trials,
                lambda candidate: self._measure(candidate, lists),
                values.index(getattr(best, name)),
            )
        popular = replace(best, popularity_share=_ALL_POPULARITY, popularity_power=0.0)
        plain, *_ = of_popular = self._weigh_liking(popular, scores)
        usual = _LIKING_WEIGHTS.index(_USUAL_LIKING_WEIGHT)
        finished = (
            _choose(candidate, itemgetter(1), usual)
            for candidate in (of_popular, self._weigh_liking(best, scores))
        )
        best_presence, ndcg = _choose([plain, *finished], itemgetter(1))
        return replace(
            best_presence, ndcg=float(ndcg.mean()), popularity_ndcg=float(plain[1].mean())
        )

    def _weigh_liking(
        self, presence: Presence, scores: LatentArray
    ) -> list[tuple[Presence, FloatArray]]:
        """Return a presence with calibrated probabilities and each weight of liking, and its
        NDCG@10 (rows,)."""
        blended = presence.add_popularity(
            scores, self._popularity, presence.raise_popularity(self._popularity)
        )
        presence = calibrate_odds(
            self._calibrate(presence, blended),
            self._held_out.train,
            self._candidates,
            lambda entries: score_columns(presence.model, entries, self._candidates),
            seed=0,
        )
        lists = self._list(scores, _SHORTLIST, by=blended)
        trials = [
            replace(presence, liking_weight=presence.score_power * weight)
            for weight in _LIKING_WEIGHTS
        ]
        return [(trial, self._measure(trial, lists)) for trial in trials]

    def _list(self, scores: LatentArray, length: int, *, by: LatentArray | None = None) -> _Lists:
        """Return the best columns, by these scores or others, of the rows that have liked hidden
        entries."""
        lines = np.flatnonzero(self._n_liked)
        keys = np.where(self._known[lines], -np.inf, (scores if by is None else by)[lines])
        n_left_out = max(keys.shape[1] - length, 0)
        if n_left_out:
            places = np.sort(np.argpartition(keys, n_left_out, axis=1)[:, n_left_out:], axis=1)
        else:
            places = np.tile(np.arange(keys.shape[1]), (lines.size, 1))
        at = lines[:, None], places
        return _Lists(
            places,
            scores[at],
            self._known[at],
            self._log_liked[at],
            self._liked[at],
            self._n_liked[lines],
            np.diff(self._visible.starts)[lines],
        )

    def _measure(self, presence: Presence, lists: _Lists) -> FloatArray:
        """Return the NDCG@10 (rows,) of rankings by relevance."""
        if len(lists.places) == 0:
            return np.zeros(1)
        popularity = raised = self._popularity[lists.places]
        if presence.popularity_power:
            raised = presence.raise_popularity(popularity)
        scores = presence.add_popularity(lists.scores, popularity, raised)
        offsets = presence.find_offsets(lists.n_visible)[:, None]
        log_probabilities = presence.log_probabilities(scores, offsets)
        keys = log_probabilities + presence.liking_weight * lists.log_liked
        keys[lists.are_known] = -np.inf
        first = find_largest(keys, _LENGTH)
        hits = np.take_along_axis(lists.are_liked, first, axis=1)
        return score_lists(hits, lists.n_liked, n=_LENGTH).ndcg

    def _calibrate(self, presence: Presence, scores: LatentArray) -> Presence:
        """Calibrate the probabilities of a presence by logistic regression on the log of its
        scores.

        Only a share of the entries is hidden, so the odds are divided by this share.
        """
        n_rows, n_all = max(_CALIBRATION_CELLS // scores.shape[1], 1), len(scores)
        n_rows = min(n_rows, n_all)
        exist = scores[self._hidden]
        absent = scores[:n_rows][~(self._known[:n_rows] | self._hidden[:n_rows])]
        if exist.size == 0 or absent.size == 0:
            return presence
        logs = np.log(make_positive(np.concatenate([exist, absent]).astype(np.float64)))
        counts = np.ones(logs.size)
        counts[exist.size :] = n_all / n_rows
        intercept, power = _fit_logistic(logs, np.arange(logs.size) < exist.size, counts)
        share = self._held_out.hidden.rows.size / (
            self._held_out.hidden.rows.size + self._held_out.visible.others.size
        )
        return replace(presence, intercept=intercept - math.log(share), score_power=power)

    def _mark(self, lines: IndexArray, columns: IndexArray) -> BoolArray:
        """Return the cells (rows, candidates) of some pairs."""
        marked = np.zeros((self._held_out.n_rows, self._candidates.size), dtype=bool)
        at, are_candidates = locate(self._candidates, columns)
        marked[lines[are_candidates], at[are_candidates]] = True
        return marked


class _Scored(NamedTuple):
    """A model, and its scores (rows, candidates) of hidden rows."""

    model: ColumnRidge
    scores: LatentArray


class _Lists(NamedTuple):
    """Candidate columns (rows, n) of each row: their places, scores and flags."""

    places: IndexArray
    scores: LatentArray
    are_known: BoolArray  # which are not ranked, because the row has an entry there
    log_liked: LatentArray
    are_liked: BoolArray  # which have a hidden entry that is liked
    n_liked: IndexArray  # (rows,) in all columns
    n_visible: IndexArray  # (rows,) entries


def _choose(candidates: Sequence[T], measure: Callable[[T], FloatArray], usual: int = 0) -> T:
    """Return the candidate with the best scores (rows,), or the usual one unless it is better by a
    standard error."""
    return choose(candidates, lambda each: -measure(each), usual=usual, at_least=1.0).candidate


def _fit_logistic(
    inputs: FloatArray, targets: BoolArray, counts: FloatArray
) -> tuple[float, float]:
    """Return the intercept and the slope, at least 0.1, of the logistic regression of counted
    targets on inputs."""
    share = float(counts @ targets / counts.sum())
    coefficients = np.array([math.log(share / (1.0 - share)), 0.0])
    middle = float(counts @ inputs / counts.sum())
    centred = inputs - middle
    powers = np.stack([np.ones_like(centred), centred, np.square(centred)])
    for _ in range(_CALIBRATION_STEPS):
        chances = expit(coefficients[0] + coefficients[1] * centred)
        errors = powers[:2] @ (counts * (targets - chances))
        hessian = (powers @ (counts * chances * (1.0 - chances)))[[[0, 1], [1, 2]]]
        hessian[np.diag_indices(2)] += 1e-9 + 1e-6 * np.diag(hessian)
        step = np.linalg.solve(hessian, errors)
        coefficients += np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-5:
            break
    slope = float(np.clip(coefficients[1], 0.1, 5.0))
    return float(coefficients[0]) - slope * middle, slope


def _measure_root_mean_square(numbers: FloatArray) -> float:
    """Return the root of the mean square, also of numbers whose squares are too large for double
    precision."""
    largest = float(np.max(np.abs(numbers)))
    return largest * float(np.sqrt(np.mean(np.square(numbers / largest)))) if largest else 0.0
