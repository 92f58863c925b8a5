"""The map of shares: cells lie where the numbers say, and their numbers can be read on light paper and on dark."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from deepmf.charts.chart import style_sheet
from deepmf.charts.heat_map import heat_map
from deepmf.matrix.arrays import FloatArray

LEFT, TOP = 52, 10


def drawn_map(shares: FloatArray, groups: Sequence[str], **named: Any) -> str:
    return str(heat_map(shares, groups, title="map", x_label="predicted", y_label="true", **named))


def cells(drawn: str) -> dict[tuple[float, float], float]:
    """Return the opacity of each cell by its upper left corner."""
    paths = re.findall(r'<path d="([^"]+)" class="cell" fill-opacity="([\d.]+)"', drawn)
    return {(float(x), float(y)): float(shade) for d, shade in paths for x, y in re.findall(r"M([\d.]+) ([\d.]+)h", d)}


def test_the_highest_true_level_is_on_top_and_larger_shares_are_darker() -> None:
    shares = np.array([[0.5, 0.5, 0], [0, 0, 0], [0.25, 0, 0.75]])
    drawn = drawn_map(shares, ["1", "2", "3"])
    found = cells(drawn)
    width, height = (360 - LEFT - 8) / 3, (340 - 38 - TOP) / 3
    where = {
        (round((x - LEFT) / width), round((y - TOP) / height)): shade for (x, y), shade in found.items()
    }  # predicted level, lines from the top
    assert where.keys() == {(0, 2), (1, 2), (0, 0), (2, 0)}
    assert where[(2, 0)] == 1
    assert where[(0, 2)] == where[(1, 2)] == pytest.approx(0.7)  # 2 / 3, in twentieths
    assert re.findall(r'class="middle on-[a-z]+">(\S+?)<', drawn) == ["50", "50", "25", "75"]


def test_a_small_share_is_not_nothing() -> None:
    drawn = drawn_map(np.array([[0.999, 0.001], [0, 1]]), ["0", "1"])
    assert re.findall(r'class="middle on-[a-z]+">(\S+?)<', drawn) == ["100", "&lt;1", "100"]


def test_many_levels_are_not_written_but_all_drawn() -> None:
    shares = np.full((64, 64), 1 / 64)
    drawn = drawn_map(shares, [str(at) for at in range(64)])
    assert len(cells(drawn)) == 64 * 64
    assert "on-" not in drawn
    assert len(drawn) < 200_000


def test_maps_can_share_their_deepest_shade() -> None:
    shares = np.array([[0.5, 0.0], [0.0, 0.5]])
    assert set(cells(drawn_map(shares, ["1", "2"])).values()) == {1.0}
    assert set(cells(drawn_map(shares, ["1", "2"], deepest=1.0)).values()) == {0.5}


def colours(scheme: str) -> dict[str, tuple[float, ...]]:
    """Return the colours of the style sheet by name, in a scheme, as linear light."""
    light, dark = style_sheet().split("@media", 1)
    found = dict(re.findall(r"--([a-z-]+): #([0-9a-f]{6})", light))
    if scheme == "dark":
        found |= dict(re.findall(r"--([a-z-]+): #([0-9a-f]{6})", dark))
    return {name: tuple(int(text[at : at + 2], 16) / 255 for at in (0, 2, 4)) for name, text in found.items()}


def luminance(colour: Sequence[float]) -> float:
    """Return the relative luminance of a colour, as in WCAG 2."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("percent", range(5, 101, 5))
def test_every_number_can_be_read_in_its_cell(scheme: str, percent: int) -> None:
    drawn = drawn_map(np.array([[percent / 100]]), ["1"], deepest=1.0)
    (ink,) = re.findall('class="middle (on-[a-z]+)"', drawn)
    (opacity,) = cells(drawn).values()
    known = colours(scheme)
    cell = [opacity * own + (1 - opacity) * paper for own, paper in zip(known["one"], known["paper"], strict=True)]
    high, low = sorted((luminance(cell), luminance(known[ink])), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= 4.5
