"""Effects: bars to both sides of 0, as long as the effects, with their numbers inside the picture."""

import re

import pytest
from tests.charts.test_lines import numbers

from deepmf.charts.axes import CHARACTER
from deepmf.charts.effect_bars import effect_bars, signed


@pytest.mark.parametrize("effects", [[0.4, -0.2, 0.1], [0.3, 0.2], [-0.3, -0.1], [0.0], [0.2, -0.0001]])
def test_bars_are_as_long_as_their_effects_and_begin_at_zero(effects: list[float]) -> None:
    names = [f"Film {number} (5)" for number in range(len(effects))]
    drawn = str(effect_bars(names, effects, title="t", x_label="effect", width=360))
    starts, lengths = numbers(drawn, "rect", "x"), numbers(drawn, "rect", "width")
    unit = max(lengths) / (max(map(abs, effects)) or 1)
    assert lengths == pytest.approx([unit * abs(effect) for effect in effects], abs=0.05)
    zeros = [
        start if effect >= 0 else start + length for start, length, effect in zip(starts, lengths, effects, strict=True)
    ]
    assert zeros == pytest.approx([zeros[0]] * len(zeros), abs=0.05)
    styles = re.findall('class="bar (one|other)"', drawn)
    assert styles == ["one" if effect >= 0 else "other" for effect in effects]


def test_numbers_run_neither_into_names_nor_out_of_the_picture() -> None:
    drawn = str(effect_bars(["x" * 20, "y"], [0.4, -0.4], title="t", x_label="effect", width=360))
    texts = re.findall(r'<text x="([\d.]+)" y="[\d.]+" class="(end )?inside">([^<]+)</text>', drawn)
    (_, names_end), right, left = (float(texts[0][0]), float(texts[0][0])), texts[1], texts[3]
    assert float(right[0]) + CHARACTER * len(right[2]) < 360
    assert float(left[0]) - CHARACTER * len(left[2]) > names_end
    assert (right[2], left[2]) == ("+0.400", "−0.400")


def test_signs() -> None:
    assert [signed(effect) for effect in (1, -0.5, 0.0, -0.0001)] == ["+1.000", "−0.500", "0.000", "0.000"]


def test_nothing_to_draw_is_an_empty_chart() -> None:
    assert "<rect" not in str(effect_bars([], [], title="t", x_label="effect"))
