"""Readouts: from scores to values, levels and distributions."""

import numpy as np
import pytest

from deepmf.errors import BadSetting
from deepmf.matrix.scale import Scale
from deepmf.models.readout import BoundaryReadout, LevelReadout, Readout, check_levels

STARS = Scale([1, 2, 3, 4, 5])
SCORES = np.array([-3.0, 1.4, 2.5, 4.6, 9.0])
NOTHING = np.empty((5, 0))


def test_the_plain_readout_clips() -> None:
    readout = Readout(STARS)
    assert readout.scores(SCORES, NOTHING) is SCORES
    for read in (readout.units, readout.values):
        assert read(SCORES).tolist() == [1, 1.4, 2.5, 4.6, 5]
    assert readout.levels(SCORES).tolist() == STARS.nearest_level(np.array([1, 1.4, 2.5, 4.6, 5])).tolist()
    assert not readout.predicts_levels and readout.pack() == {}


def test_levels_are_predictions_and_units_are_scores() -> None:
    readout = LevelReadout(Scale([0, 1, 10]))
    assert readout.predicts_levels
    assert readout.values(SCORES).tolist() == readout.levels(SCORES).tolist() == [0, 1, 1, 1, 10]
    assert readout.units(SCORES).tolist() == [0, 1.4, 2.5, 4.6, 9]


def test_boundaries_tell_levels_apart() -> None:
    readout = BoundaryReadout(Scale([0, 1, 10]), np.array([-0.5, 4.6]))
    assert readout.predicts_levels
    assert readout.values(SCORES).tolist() == readout.levels(SCORES).tolist() == [0, 1, 1, 10, 10]
    assert readout.units(SCORES).tolist() == [0, 1.4, 2.5, 4.6, 9]
    assert readout.pack()["boundaries"].tolist() == [-0.5, 4.6]


@pytest.mark.parametrize("readout", [Readout(STARS), LevelReadout(STARS), BoundaryReadout(STARS, np.arange(4) + 1.5)])
def test_a_value_is_no_distribution(readout: Readout) -> None:
    assert not readout.gives_distribution and readout.row_fields == slice(0, 0)
    for ask in (
        lambda: readout.support,
        lambda: readout.unit_boundaries,
        lambda: readout.distribution(SCORES, NOTHING),
    ):
        with pytest.raises(BadSetting, match="^this model predicts a value, not a distribution; OrdinalDMF, ICFNADE"):
            ask()


def test_levels_by_which_metric_and_of_which_scale() -> None:
    for metric in ("rmse", "mae", "accuracy"):
        check_levels(STARS, metric)
    with pytest.raises(BadSetting, match="^metric must be 'rmse' or 'mae' or 'accuracy'; got 'median'$"):
        check_levels(STARS, "median")
    with pytest.raises(BadSetting, match="^the scale 0 to 1 has no levels; predict gives real values$"):
        check_levels(Scale(low=0, high=1), "rmse")
