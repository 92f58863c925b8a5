"""Axes: round ticks, ends that hold everything, names that do not run into one another."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepmf.charts.axes import SMALL, Axis, Frame, LogAxis, WholeAxis, across, axis_names, group_names, rising, scaffold

NUMBERS = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda number: round(number, 3)), min_size=1)


@given(NUMBERS)
def test_the_axis_holds_all_numbers_and_ends_on_ticks(numbers: list[float]) -> None:
    axis = rising(numbers, SMALL)
    ticks = axis.ticks(wanted=4)
    assert axis.low <= min(numbers) + 1e-6
    assert axis.high >= max(numbers) - 1e-6
    assert 2 <= len(ticks) <= 8
    assert (ticks[0], ticks[-1]) == pytest.approx((axis.low, axis.high))
    assert (axis.at(axis.low), axis.at(axis.high)) == (SMALL.foot, SMALL.top) == (182, 10)


@pytest.mark.parametrize(
    ("numbers", "ends"), [([0.286, 0.676], (0.2, 0.8)), ([3, 41], (0, 60)), ([5.0], (4.5, 5.5)), ([0.0, 0.0], (-1, 1))]
)
def test_round_ends(numbers: list[float], ends: tuple[float, float]) -> None:
    axis = rising(numbers, SMALL)
    assert (axis.low, axis.high) == pytest.approx(ends)


def test_numbers_that_differ_by_rounding_alone_are_one() -> None:
    axis = rising([0.1, np.nextafter(0.1, 1)], SMALL)
    assert axis.low < 0.1 < axis.high


def test_bars_start_at_zero() -> None:
    assert rising([99, 100], SMALL, from_zero=True).low == 0
    assert rising([0, 0], SMALL, from_zero=True).high > 0


def test_a_stretch_of_one_number_is_in_the_middle() -> None:
    assert Axis(3, 3, 0, 10).at(3) == 5


def test_ticks_are_written_where_they_are() -> None:
    written = scaffold(Axis(0, 1, 100, 0), Frame(height=140), x_label="epoch", y_label="loss")
    assert re.findall(r'y1="([\d.]+)"', written) == ["100", "75", "50", "25", "0"]
    assert re.findall(r'class="end">([^<]+)<', written) == ["0", "0.25", "0.5", "0.75", "1"]


def test_names_of_groups_leave_each_other_room() -> None:
    names = [f"{number}" for number in range(10, 50)]
    places = np.linspace(SMALL.left, SMALL.end, 40).tolist()
    shown = re.findall(r'<text x="([\d.]+)".*?>(\d+)<', group_names(names, places, SMALL))
    assert 5 < len(shown) < 40
    assert shown[0][1] == "10"
    assert np.diff([float(place) for place, _ in shown]).min() > 12
    assert len(re.findall("<text", group_names(names[:5], places[:5], SMALL))) == 5
    assert group_names([], [], SMALL) == ""


def test_on_a_logarithmic_axis_equal_ratios_are_equally_long() -> None:
    axis = LogAxis(1, 100, 0, 10)
    assert [axis.at(number) for number in (1, 10, 100)] == pytest.approx([0, 5, 10])
    assert axis.ticks() == [1, 2, 5, 10, 20, 50, 100]
    assert re.findall(r">([\d.]+)<", across(LogAxis(1, 100, 52, 352), SMALL)) == "1 2 5 10 20 50 100".split()


@pytest.mark.parametrize("last", [2, 3, 6, 7, 10, 11, 12, 13, 20, 30, 51, 1000])
def test_epochs_are_whole(last: int) -> None:
    ticks = WholeAxis(1, last, 0, 1).ticks()
    assert all(tick.is_integer() for tick in ticks)
    assert 2 <= len(ticks) <= 6
    assert len(set(np.diff(ticks))) == 1


def test_higher_charts_have_more_ticks() -> None:
    assert (SMALL.steps, Frame(height=400).steps) == (4, 7)


def test_a_name_that_is_empty_is_left_out() -> None:
    assert axis_names("", "", SMALL) == ""
    assert re.findall(">(.*?)<", axis_names("epoch", "", SMALL)) == ["epoch"]
