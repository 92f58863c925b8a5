"""Bars: as high, or as long, as the numbers say."""

import re

import numpy as np
import pytest
from tests.charts.test_lines import BOTTOM, HEIGHT, LEFT, NAMES, TOP, numbers

from deepmf.charts.bars import bars, level_bars
from deepmf.charts.series import Series
from deepmf.charts.styles import ONE, OTHER

RIGHT, WIDTH = 8, 360


def test_bars_are_as_high_as_their_numbers() -> None:
    drawn = str(bars(["a", "b"], [Series("one", [4, 2]), Series("two", [1, 0], OTHER)], **NAMES))
    assert numbers(drawn, "rect", "height") == pytest.approx(np.array([4, 2, 1, 0]) / 4 * (HEIGHT - BOTTOM - TOP))
    feet = np.add(numbers(drawn, "rect", "y"), numbers(drawn, "rect", "height"))
    assert feet == pytest.approx(np.full(4, HEIGHT - BOTTOM))
    left = numbers(drawn, "rect", "x")
    assert left[0] < left[2] < left[1] < left[3]  # those of one group side by side
    assert re.findall('class="bar (one|other)"', drawn) == ["one", "one", "other", "other"]
    assert "<title>b, one: 2</title>" in drawn


def test_bars_of_many_groups_stay_inside() -> None:
    groups = [str(at) for at in range(64)]
    drawn = str(bars(groups, [Series("one", range(64)), Series("two", range(64))], **NAMES))
    left, width = np.array(numbers(drawn, "rect", "x")), np.array(numbers(drawn, "rect", "width"))
    assert left.min() >= LEFT
    assert (left + width).max() <= WIDTH - RIGHT


def test_grouped_bars_have_their_spread() -> None:
    drawn = str(bars(["a"], [Series("one", [3.0], ONE, [1.0]), Series("two", [2.0], OTHER)], **NAMES))
    ((low, high),) = re.findall(r'd="M\S+ ([\d.]+)h6m-3 0V([\d.]+)m-3 0h6" class="spread one"', drawn)
    top = numbers(drawn, "rect", "y")[0]
    assert (float(low) - top, top - float(high)) == pytest.approx([(HEIGHT - BOTTOM - TOP) / 4] * 2, abs=0.1)
    assert "<title>a, one: 3 ± 1</title>" in drawn


def test_level_bars_are_as_long_as_their_shares() -> None:
    drawn = str(level_bars(["penalty", "latent_size"], [0.75, 0.25], title="t", x_label="importance, %"))
    long, short = numbers(drawn, "rect", "width")
    assert long == pytest.approx(3 * short, abs=0.02)
    assert re.findall(r">([^<]+)</text>", drawn) == ["penalty", "75 %", "latent_size", "25 %", "importance, %"]
