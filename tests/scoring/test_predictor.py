"""The predictor: scores of pairs and blocks, rows and columns encoded anew, directions, and what
its file may hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.errors import BadSetting, CannotExtend, TrainingDiverged
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.scoring.encoders import Encoder, NoEncoder
from deepmf.scoring.factors import Factors, unpack_latents
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import BoundaryReadout, LevelReadout, Readout, check_levels

Table = npt.NDArray[np.float32]

STARS = Scale([1, 2, 3, 4, 5])

ENTRIES = EntryStore.of(ObservedMatrix.from_array([[1, 2, np.nan], [np.nan, 4, 5]], STARS))


class FieldReadout(Readout):
    """The field of a row is added to its products."""

    def scores(self, products: npt.NDArray[Any], row_fields: Any) -> npt.NDArray[Any]:
        return products + row_fields[..., 0]


class SumEncoder(Encoder):
    """A row is (sum of its values, first latent of its last column, 10); a column (number of its
    entries, 1, 0). The last number of a row is its field."""

    sides = slice(2, 3)

    def encode(self, axis: Axis, entries: AxisEntries, others: Latents) -> Any:
        if axis == "column":
            counts = np.diff(entries.starts)
            return np.column_stack([counts, np.ones(counts.size), np.zeros(counts.size)]).astype(
                np.float32
            )
        groups = [slice(*pair) for pair in zip(entries.starts, entries.starts[1:], strict=False)]
        sums = [entries.values[group].sum() for group in groups]
        last = [others.take(entries.others[group][-1:])[:, 0].sum() for group in groups]
        return np.column_stack([sums, last, np.full(len(groups), 10)]).astype(np.float32)


ROWS: Table = np.array([[1, 2, 100], [3, -1, 200]], dtype=np.float32)

COLUMNS: Table = np.array([[1, 0, 0], [0, 1, 0], [2, 2, 0]], dtype=np.float32)


def predictor(encoder: Encoder | None = None) -> Predictor:
    factors = Factors(Latents(ROWS), Latents(COLUMNS), encoder or SumEncoder(), n_beside=1)
    return Predictor.of(factors, FieldReadout(STARS))


def test_pairs_and_blocks_are_products_read_with_the_fields_of_rows() -> None:
    expected = (ROWS @ COLUMNS.T) + ROWS[:, 2:]
    one = predictor()
    every = np.arange(2), np.arange(3)
    np.testing.assert_array_equal(one.score_block(*every), expected)
    rows, columns = np.array([1, 0, 1, 1]), np.array([2, 1, 0, 2])
    np.testing.assert_array_equal(one.score_pairs(rows, columns), expected[rows, columns])
    np.testing.assert_array_equal(
        one.score_block(np.array([1]), np.array([2, 0])), expected[[1]][:, [2, 0]]
    )
    assert one.score_pairs(rows[:0], columns[:0]).shape == (0,)
    assert one.score_block(rows[:0], columns).shape == (0, 4)


def test_levels_are_those_of_scores_where_there_is_no_distribution() -> None:
    low = replace(predictor(), readout=Readout(STARS))
    pairs = np.array([0, 1, 0]), np.array([0, 0, 2])
    for metric in ("rmse", "mae", "accuracy"):
        assert low.predict_levels(*pairs, metric=metric).tolist() == [1, 3, 5]
    assert not low.readout.gives_distribution
    with pytest.raises(BadSetting, match="metric"):
        low.predict_levels(*pairs, metric="best")
    for ask in (
        lambda: low.distribution(*pairs),
        lambda: low.readout.support,
        lambda: low.readout.unit_boundaries,
    ):
        with pytest.raises(BadSetting, match="distribution"):
            ask()


def test_columns_are_encoded_before_the_rows_that_are_encoded_by_them() -> None:
    new = ObservedMatrix.from_entries([5, 1, 0], [1, 0, 7], [3, 5, 2], STARS)
    entries, rows, columns, *_ = ENTRIES.extend(new)
    one = predictor()
    more = one.extend(entries, rows, columns)
    # Row 1 now has 5 + 4 + 5, row 5 has 3; column 0 has two entries, column 7 one, over trained
    # rows.
    np.testing.assert_array_equal(
        more.columns.whole(), [[2, 1, 0], [0, 1, 0], [2, 2, 0], [1, 1, 0]]
    )
    np.testing.assert_array_equal(more.rows.whole(), [ROWS[0], [14, 2, 10], [3, 0, 10]])
    assert more.rows.base is one.rows.base and len(one.rows) == 2 and len(one.columns) == 3
    assert one.extend(entries, rows[:0], columns[:0]).rows is one.rows
    back = (
        more.without("row", np.array([2]))
        .without("column", np.array([3]))
        .extend(ENTRIES, np.array([1]), np.array([0]))
    )
    # described as in training: as training made them
    np.testing.assert_array_equal(back.rows.whole(), ROWS)
    assert back.columns.whole() is one.columns.whole()


def test_rows_and_columns_that_are_stored_nowhere() -> None:
    some = AxisEntries(np.array([0, 2, 2]), np.array([0, 2]), np.array([4.0, 5.0]))
    one = predictor()
    rows, columns = one.with_only("row", some), one.with_only("column", some)
    np.testing.assert_array_equal(rows.rows.whole(), [[9, 2, 10], [0, 0, 10]])
    np.testing.assert_array_equal(columns.columns.whole(), [[2, 1, 0], [0, 1, 0]])
    assert rows.columns is one.columns and columns.rows is one.rows and len(one.rows) == 2
    endless = AxisEntries(np.array([0, 1]), np.array([0]), np.array([np.inf]))
    with pytest.raises(TrainingDiverged, match="finite"):
        one.with_only("row", endless)


def test_factors_alone_encode_nothing() -> None:
    some = AxisEntries(np.array([0, 1]), np.array([0]), np.array([4.0]))
    with pytest.raises(CannotExtend, match="latent"):
        predictor(NoEncoder()).with_only("row", some)
    with pytest.raises(CannotExtend, match="latent"):
        predictor(NoEncoder()).with_only("column", some)
    assert NoEncoder().pack() == ({}, {})


def test_directions_are_of_length_1_and_leave_out_what_is_beside() -> None:
    columns = Latents(np.array([[3, 4, 7], [0, 0, 1]], dtype=np.float32))
    factors = replace(predictor().factors, columns=columns)
    one = Predictor.of(factors, Readout(STARS))
    np.testing.assert_allclose(one.directions(one.columns), [[0.6, 0.8], [0, 0]], rtol=1e-6)
    with pytest.raises(BadSetting, match="latents"):
        replace(factors, n_beside=3).drop_beside(columns)


def test_what_is_packed_comes_back() -> None:
    new = ObservedMatrix.from_entries([5, 1], [1, 0], [3, 5], STARS)
    entries, rows, columns, *_ = ENTRIES.extend(new)
    more = predictor().extend(entries, rows, columns)
    tensors = more.pack().tensors
    assert set(tensors) == {
        f"latents.{axis}.{part}" for axis in ("rows", "columns") for part in PARTS
    }
    for found, kept in zip(
        unpack_latents(tensors, entries, width=3), (more.rows, more.columns), strict=True
    ):
        for part in PARTS:
            np.testing.assert_array_equal(getattr(found, part), getattr(kept, part))


PARTS = ("base", "positions", "extra")


SCORES = np.array([-3.0, 1.4, 2.5, 4.6, 9.0])

NOTHING = np.empty((5, 0))


def test_the_plain_readout_clips() -> None:
    readout = Readout(STARS)
    assert readout.scores(SCORES, NOTHING) is SCORES
    for read in (readout.units, readout.values):
        assert read(SCORES).tolist() == [1, 1.4, 2.5, 4.6, 5]
    assert not readout.predicts_levels and readout.pack() == {}


def test_levels_are_predictions_and_units_are_scores() -> None:
    readout = LevelReadout(Scale([0, 1, 10]))
    assert readout.predicts_levels
    assert readout.values(SCORES).tolist() == [0, 1, 1, 1, 10]
    assert readout.units(SCORES).tolist() == [0, 1.4, 2.5, 4.6, 9]


def test_boundaries_tell_levels_apart() -> None:
    readout = BoundaryReadout(Scale([0, 1, 10]), np.array([-0.5, 4.6]))
    assert readout.predicts_levels
    assert readout.values(SCORES).tolist() == [0, 1, 1, 10, 10]
    assert readout.units(SCORES).tolist() == [0, 1.4, 2.5, 4.6, 9]
    assert readout.pack()["boundaries"].tolist() == [-0.5, 4.6]


@pytest.mark.parametrize(
    "readout", [Readout(STARS), LevelReadout(STARS), BoundaryReadout(STARS, np.arange(4) + 1.5)]
)
def test_a_value_is_no_distribution(readout: Readout) -> None:
    assert not readout.gives_distribution
    for ask in (
        lambda: readout.support,
        lambda: readout.unit_boundaries,
        lambda: readout.distribution(SCORES, NOTHING),
    ):
        with pytest.raises(BadSetting, match="OrdinalDMF"):
            ask()


def test_levels_by_which_metric_and_of_which_scale() -> None:
    for metric in ("rmse", "mae", "accuracy"):
        check_levels(STARS, metric)
    with pytest.raises(BadSetting, match="'median'"):
        check_levels(STARS, "median")
    with pytest.raises(BadSetting, match="levels"):
        check_levels(Scale(low=0, high=1), "rmse")
