"""Lines: points, error bars and pieces of curves lie where the numbers say."""

import re

import numpy as np
import pytest

from deepmf.charts.axes import LogAxis
from deepmf.charts.lines import curve, dots, lines
from deepmf.charts.series import Curve, Series
from deepmf.charts.styles import ONE, numbered

LEFT, TOP, BOTTOM, HEIGHT = 52, 10, 38, 220
NAMES: dict[str, str] = {"title": "title", "x_label": "x", "y_label": "y"}


def numbers(written: str, element: str, attribute: str) -> list[float]:
    """Return an attribute of every such element, in order."""
    return [float(found) for found in re.findall(rf'<{element} [^>]*?\b{attribute}="(-?[\d.]+)"', written)]


def test_dots_go_from_left_to_right_and_up() -> None:
    drawn = str(dots(["a", "b", "c"], [Series("one", [1, 3, 2])], **NAMES))
    x, y = numbers(drawn, "circle", "cx"), numbers(drawn, "circle", "cy")
    assert x == sorted(x)
    assert y == pytest.approx([HEIGHT - BOTTOM, TOP, (HEIGHT - BOTTOM + TOP) / 2])
    points = re.findall(r'points="([^"]+)"', drawn)[0].split()
    assert [point.split(",")[1] for point in points] == [f"{at:.1f}" for at in y]


def test_a_curve_and_its_best() -> None:
    drawn = str(curve([1, 2, 3], [8, 3, 4], best=1, **NAMES))
    points = [tuple(map(float, point.split(","))) for point in re.findall(r'points="([^"]+)"', drawn)[0].split()]
    assert points[1] == pytest.approx((numbers(drawn, "circle", "cx")[0], numbers(drawn, "circle", "cy")[0]), abs=0.1)
    assert points[0][0] == LEFT
    assert "circle" not in str(curve([1, 2], [8, 2], **NAMES))
    assert "<title>2: 3</title>" in drawn


def test_one_epoch_is_a_point() -> None:
    drawn = str(curve([7], [0.5], **NAMES))
    assert len(numbers(drawn, "circle", "cx")) == 1
    assert ">7</text>" in drawn


def points_of(drawn: str) -> list[list[tuple[float, float]]]:
    """Return the points of every line."""
    found = re.findall(r'points="([^"]+)"', drawn)
    return [[tuple(map(float, point.split(","))) for point in line.split()] for line in found]  # type: ignore[misc]


def test_error_bars_go_as_far_as_their_margins() -> None:
    drawn = str(dots(["a", "b"], [Series("one", [2, 3], ONE, [1, None])], **NAMES))
    ((low, high),) = re.findall(r'd="M\S+ ([\d.]+)h6m-3 0V([\d.]+)m-3 0h6" class="spread one"', drawn)
    y = numbers(drawn, "circle", "cy")
    assert float(low) - y[0] == pytest.approx(y[0] - float(high), abs=0.11)
    assert float(low) - y[0] == pytest.approx(y[0] - y[1], abs=0.11)  # 1, as from 2 to 3
    assert "<title>a, one: 2 ± 1</title>" in drawn
    assert "<title>b, one: 3</title>" in drawn


def test_error_bars_of_one_place_stand_side_by_side_with_their_lines() -> None:
    drawn = str(dots(["a", "b"], [Series(name, [1, 2], numbered(0), [0.1, 0.1]) for name in "xyz"], **NAMES))
    left = numbers(drawn, "circle", "cx")[::2]
    assert len(set(left)) == 3
    assert [line[0][0] for line in points_of(drawn)] == pytest.approx(left, abs=0.05)


def test_curves_lie_over_a_common_axis() -> None:
    curves = [Curve("a", [1, 2], numbered(0), places=[1, 10]), Curve("b", [2, 1], numbered(1), places=[10, 100])]
    drawn = str(lines(curves, x_axis=LogAxis, **NAMES))
    first, second = points_of(drawn)
    assert first[1] == second[0]
    assert second[1][0] - second[0][0] == pytest.approx(first[1][0] - first[0][0], abs=0.11)
    assert re.findall('class="line (.*?)"', drawn) == ["c1", "c2"]
    assert drawn.count('class="dot c1"') == drawn.count('class="dot c2"') == 2


def test_equal_ratios_are_equally_high_on_an_axis_of_ratios() -> None:
    drawn = str(lines([Curve("a", [10, 100, 1000], places=[1, 2, 3])], y_axis=LogAxis, **NAMES))
    heights = numbers(drawn, "circle", "cy")
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.11)
    assert TOP < heights[2] < heights[0] < HEIGHT - BOTTOM
    assert ">100</text>" in drawn


def test_what_lies_outside_is_cut_off_where_it_crosses() -> None:
    drawn = str(lines([Curve("a", [3, 1, 0.5, 2.5, 3], places=[0, 1, 2, 3, 4])], y_ends=(0, 2), **NAMES))
    (line,) = points_of(drawn)
    xs, ys = np.array(line).T
    unit = (line[1][0] - line[0][0]) * 2  # it crosses 2 half-way from 0 to 1
    assert ys[[0, -1]] == pytest.approx([TOP, TOP])
    assert (xs - xs[0]) / unit == pytest.approx([0, 0.5, 1.5, 2.25], abs=0.01)
    assert len(numbers(drawn, "circle", "cx")) == 2
    two = str(lines([Curve("a", [1, 3, 3, 1], places=[0, 1, 2, 3])], y_ends=(0, 2), **NAMES))
    assert [len(piece) for piece in points_of(two)] == [2, 2]


def test_a_long_curve_has_some_marks_all_on_its_line() -> None:
    places = np.linspace(0, 1, 200)
    drawn = str(lines([Curve("a", np.exp(-5 * places).tolist(), places=places.tolist())], **NAMES))
    (line,) = points_of(drawn)
    marks = list(zip(numbers(drawn, "circle", "cx"), numbers(drawn, "circle", "cy"), strict=True))
    assert len(marks) == 10
    assert all(min(np.hypot(x - a, y - b) for a, b in line) < 0.11 for x, y in marks)


def test_one_place_alone_is_in_the_middle() -> None:
    for kind in (LogAxis, LogAxis.__mro__[1]):
        drawn = str(lines([Curve("a", [1.0], places=[5.0])], x_axis=kind, **NAMES))
        assert numbers(drawn, "circle", "cx") == pytest.approx([(LEFT + 352) / 2])
