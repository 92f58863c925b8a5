"""How true probabilities are for rows and columns that arrive with few entries.

A share of the rows, of the columns, or of both is kept out of a fit and arrives with k entries
each; the others are predicted. Beside the model are the smoothed frequencies of the known side: of
the column of a new row, of the row of a new column, of all entries where both are new.

    python benchmarks/arrival_probabilities.py [FILE] [--models dmf-o bayesian] [--seeds 3]

Without a file, matrices of 400 x 150 with noise .5 are generated. Each line has the mean stated
probability, the share that came true, and the number of forecasts, for probabilities of levels in
tenths ("reliability"). tools/concept_pictures.py draws those of results/arrivals.jsonl, the output of

    python benchmarks/arrival_probabilities.py --seeds 4
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from deepmf.data.synthetic import generate
from deepmf.evaluation.calibration import ReliabilityBin, evaluate_calibration
from deepmf.matrix.arrays import BoolArray, FloatArray, IndexArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import mae_error, rmse_error
from deepmf.models.base import Model
from deepmf.models.registry import model_class
from deepmf.recommend.request import Request
from deepmf.scoring.distribution import Frequencies

Side = Literal["rows", "columns", "both"]

SIDES: tuple[Side, ...] = ("rows", "columns", "both")

# The share of rows and columns that arrive, and of the other entries that are predicted.
_NEW_SHARE, _KNOWN_SHARE = 0.15, 0.05

_COVERAGE = 0.9

# Bins of stated probabilities.
_N_BINS = 10

# No probability is taken to be smaller.
_LEAST_CHANCE = 1e-9


class Figures(NamedTuple):
    """What was measured on entries of rows and columns that arrived with a number of them."""

    side: str  # "known" for entries of known rows and columns
    n_known: int  # entries that each arrives with
    n_entries: int
    log_loss: float
    frequencies_loss: float
    coverage: float  # of predict_interval
    rmse: float
    mae: float
    bins: tuple[ReliabilityBin, ...]


class FurtherEntries(NamedTuple):
    """How many further entries new rows with a number of entries have in known columns, on
    average."""

    n_known: int
    n_rows: int
    expected: float  # the sum of presence
    observed: float


class Arrivals(NamedTuple):
    """A matrix, and which of its rows and columns are new, and of its other entries are tests."""

    matrix: ObservedMatrix
    new_rows: BoolArray
    new_columns: BoolArray
    are_tests: BoolArray  # (entries,)

    @classmethod
    def draw(cls, matrix: ObservedMatrix, side: Side, *, seed: int) -> Arrivals:
        """Return arrivals at random."""
        numbers = np.random.default_rng(seed)
        new_rows = numbers.random(matrix.shape[0]) < _NEW_SHARE * (side != "columns")
        new_columns = numbers.random(matrix.shape[1]) < _NEW_SHARE * (side != "rows")
        are_tests = numbers.random(matrix.n_entries) < _KNOWN_SHARE
        are_known = ~new_rows[matrix.entry_rows] & ~new_columns[matrix.by_row.columns]
        return cls(matrix, new_rows, new_columns, are_tests & are_known)

    def take(self, chosen: BoolArray) -> ObservedMatrix:
        """Return some entries, with the rows and columns that they are in."""
        places = np.flatnonzero(chosen)
        rows = np.unique(self.matrix.entry_rows[places])
        columns = np.unique(self.matrix.by_row.columns[places])
        return self.matrix.take_entries(places).take(rows, columns)

    @property
    def are_of_new_rows(self) -> BoolArray:
        """Which entries are in new rows."""
        return self.new_rows[self.matrix.entry_rows]

    @property
    def are_of_new_columns(self) -> BoolArray:
        """Which entries are in new columns."""
        return self.new_columns[self.matrix.by_row.columns]

    @property
    def train(self) -> ObservedMatrix:
        """The entries of known rows and columns that are not predicted."""
        return self.take(~(self.are_of_new_rows | self.are_of_new_columns | self.are_tests))

    def measure(self, model: Model, side: Side, counts: Iterable[int]) -> Iterator[Figures]:
        """Yield what a model that was fitted to `train` predicts for arrivals with each number of
        entries."""
        matrix, row_of, column_of = self.matrix, self.matrix.entry_rows, self.matrix.by_row.columns
        in_new_row, in_new_column = self.are_of_new_rows, self.are_of_new_columns
        knows_row = np.isin(row_of, matrix.rows.find(model.row_labels_))
        knows_column = np.isin(column_of, matrix.columns.find(model.column_labels_))
        yield self._predict(model, "known", 0, self.are_tests & knows_row & knows_column)
        for count in counts:
            of_rows = draw_first(row_of, in_new_row & knows_column, count)
            of_columns = draw_first(column_of, in_new_column & knows_row, count)
            given = of_rows | of_columns
            has_row = np.bincount(row_of[of_rows], minlength=len(matrix.rows)) == count
            has_column = np.bincount(column_of[of_columns], minlength=len(matrix.columns)) == count
            row_arrives = in_new_row & has_row[row_of]
            column_arrives = in_new_column & has_column[column_of]
            arrived = {
                "rows": row_arrives & knows_column,
                "columns": column_arrives & knows_row,
                "both": row_arrives & column_arrives,
            }[side]
            extended = model.extend(self.take(given))
            yield self._predict(extended, side, count, arrived & ~given)

    def count_further(self, model: Model, counts: Iterable[int]) -> Iterator[FurtherEntries]:
        """Yield the further entries of new rows with each number of entries, for a model with a
        presence part."""
        matrix, n_columns = self.matrix, len(model.column_labels_)
        knows_column = np.isin(matrix.by_row.columns, matrix.columns.find(model.column_labels_))
        is_allowed = self.are_of_new_rows & knows_column
        lengths = np.bincount(matrix.entry_rows[is_allowed], minlength=len(matrix.rows))
        for count in counts:
            rows = np.flatnonzero(lengths >= count)
            given = draw_first(matrix.entry_rows, is_allowed, count)
            extended = model.extend(self.take(given & np.isin(matrix.entry_rows, rows)))
            positions = extended.entries_.rows.positions(matrix.rows[rows])
            relevance = extended.make_ranker(Request(rank_by="relevance")).relevance
            assert relevance is not None
            every_column = np.tile(np.arange(n_columns), (rows.size, 1))
            chances = relevance.read_presence(positions, every_column)
            known = extended.entries_.row_entries(positions)
            chances[known.group_of, known.others] = 0.0
            expected = float(chances.sum(axis=1).mean())
            yield FurtherEntries(count, rows.size, expected, float(lengths[rows].mean() - count))

    def _predict(self, model: Model, side: str, count: int, asked: BoolArray) -> Figures:
        """Return the figures of some entries."""
        entries = self.matrix.take_entries(asked)
        rows, columns, values = entries.entries()
        chances = model.predict_distribution(rows, columns)
        calibration = evaluate_calibration(model, entries, coverage=_COVERAGE, bins=_N_BINS)
        predictions = model.predict(rows, columns)
        return Figures(
            side,
            count,
            values.size,
            find_log_loss(chances, model, values),
            find_log_loss(self._read_frequencies(model, side, rows, columns), model, values),
            calibration.coverage,
            rmse_error(predictions, values),
            mae_error(predictions, values),
            calibration.bins,
        )

    def _read_frequencies(self, model: Model, side: str, rows: Any, columns: Any) -> FloatArray:
        """Return the smoothed frequencies of the known side for each pair."""
        entries = model.entries_
        frequencies = Frequencies.of(entries.train, model.predictor_.readout.unit_boundaries)
        if side == "columns":
            return frequencies.smooth(entries.row_entries(entries.rows.positions(rows)))
        if side == "both":
            return np.broadcast_to(frequencies.shares, (len(rows), frequencies.shares.size))
        return frequencies.smooth(entries.column_entries(entries.columns.positions(columns)))


def draw_first(groups: IndexArray, allowed: BoolArray, count: int) -> BoolArray:
    """Return some random entries of each group, among the allowed ones."""
    order = np.random.default_rng(count).permutation(np.flatnonzero(allowed))
    order = order[np.argsort(groups[order], kind="stable")]
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    rank = np.arange(order.size) - np.repeat(starts, sizes)
    is_drawn = np.zeros(groups.size, dtype=bool)
    is_drawn[order[rank < count]] = True
    return is_drawn


def find_log_loss(chances: FloatArray, model: Model, values: FloatArray) -> float:
    """Return the mean negative logarithm of the probabilities of values."""
    places = np.searchsorted(model.support_, values)
    return float(-np.log(np.maximum(chances[np.arange(values.size), places], _LEAST_CHANCE)).mean())


def pool_bins(parts: Iterable[tuple[ReliabilityBin, ...]]) -> list[tuple[float, float, int]]:
    """Return the mean stated probability, the share that came true and the number of forecasts in
    each bin of several measurements."""
    sums = np.zeros((_N_BINS, 3))
    for part in itertools.chain.from_iterable(parts):
        place = min(int(part.forecast * _N_BINS), _N_BINS - 1)
        sums[place] += part.n_forecasts * np.array([part.forecast, part.observed, 1.0])
    totals = sums[sums[:, 2] > 0]
    means = (totals[:, :2] / totals[:, 2:]).round(4)
    return [(*pair, int(count)) for pair, count in zip(means.tolist(), totals[:, 2], strict=True)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line of figures for each model, kind of arrival and number of entries."""
    parser = argparse.ArgumentParser(
        prog="arrival_probabilities.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", help="entries; default: generated matrices")
    parser.add_argument("--models", nargs="+", default=["dmf-o", "bayesian"])
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--counts", nargs="+", type=int, default=[1, 3, 10])
    parser.add_argument("--seeds", type=int, default=1, help="how many splits are averaged")
    options = parser.parse_args(arguments)
    for name in options.models:
        for side in options.sides:
            figures: list[list[Figures]] = []
            further: list[list[FurtherEntries]] = []
            for seed in range(options.seeds):
                matrix = _read(options.file, seed)
                arrivals = Arrivals.draw(matrix, side, seed=seed)
                model = model_class(name)(effort=options.effort, seed=seed, device="cpu")
                model.fit(arrivals.train)
                figures.append(list(arrivals.measure(model, side, options.counts)))
                if side == "rows":
                    further.append(list(arrivals.count_further(model, options.counts)))
            for of_seeds in zip(*figures, strict=True):
                first, sizes = of_seeds[0], [figure.n_entries for figure in of_seeds]
                described = {"side": first.side, "known": first.n_known, "n": sum(sizes)}
                described["reliability"] = pool_bins(figure.bins for figure in of_seeds)
                _print(name, described, of_seeds, sizes)
            for of_seeds in zip(*further, strict=True):
                first, sizes = of_seeds[0], [figure.n_rows for figure in of_seeds]
                described = {"side": "presence", "known": first.n_known, "n": sum(sizes)}
                _print(name, described, of_seeds, sizes)
    return 0


def _read(file: str | None, seed: int) -> ObservedMatrix:
    if file is None:
        return generate(400, 150, noise=0.5, named=False, seed=seed).matrix
    from deepmf.data.read import read_matrix

    return read_matrix(file)


def _print(
    name: str,
    described: dict[str, Any],
    figures: Sequence[Figures | FurtherEntries],
    weights: Sequence[int],
) -> None:
    """Print the figures of several splits, which are numbers with a fraction, averaged."""
    numbers = [
        {key: number for key, number in figure._asdict().items() if isinstance(number, float)}
        for figure in figures
    ]
    means = {
        key: round(float(np.average([each[key] for each in numbers], weights=weights)), 4)
        for key in numbers[0]
    }
    sys.stdout.write(json.dumps({"model": name} | described | means) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
