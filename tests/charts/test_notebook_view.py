"""A view in a notebook: everything escaped, charts inline, and a style that stays inside."""

import re

from deepmf.charts.bars import level_bars
from deepmf.charts.notebook_view import notebook_view


def test_facts_and_charts_are_inside() -> None:
    chart = level_bars(["a"], [0.5], title="one bar", x_label="share")
    shown = notebook_view("ALS", {"scale": "1 to 5"}, {"a figure": chart})
    assert shown.startswith('<div class="deepmf-view">') and shown.endswith("</div>")
    assert "<th>scale</th><td>1 to 5</td>" in shown
    assert f"<figure>{chart}<figcaption>a figure</figcaption></figure>" in shown
    assert "<table>" not in notebook_view("ALS", {})


def test_nothing_is_left_unescaped() -> None:
    assert "<script>" not in notebook_view("<script>", {"<script>": "<script>"})


def test_the_style_reaches_nothing_else() -> None:
    style = re.search("<style>(.*)</style>", notebook_view("ALS", {}), re.DOTALL)
    assert style is not None
    assert style[1].startswith(".deepmf-view {") and style[1].endswith("}")
    assert ":root" not in style[1]
    depth, outside = 0, ""
    for character in style[1]:
        depth += {"{": 1, "}": -1}.get(character, 0)
        outside += character if depth == 0 else ""
    assert outside == ".deepmf-view }"  # one rule holds all others
