"""The chart of an explanation: a bar for each entry, with its value, whatever its label."""

import numpy as np

from deepmf.charts.explanation_chart import explanation_chart
from deepmf.models.explanation import Explanation, FeatureEffect


def test_a_bar_for_each_entry() -> None:
    labels = np.array(["Alien", "<b>" * 30], dtype=object)
    found = Explanation(labels, np.array([5.0, 2.5]), np.array([0.25, -0.125]), 4.2)
    chart = explanation_chart(found, row="ann", column="Fargo")
    drawn = str(chart)
    assert drawn.count("<rect") == 2
    assert ">Alien (5)</text>" in drawn
    assert "… (2.5)</text>" in drawn  # a label that is too long is cut, its value is not
    assert "<b>" not in drawn
    assert chart.title.startswith("Effects of entries on the prediction of 4.200 for ann and Fargo: Alien (5) +0.250;")
    assert "for a new row and Fargo" in explanation_chart(found, row=None, column="Fargo").title


def test_features_have_bars_below_those_of_entries() -> None:
    features = (FeatureEffect("genres", "Horror", 0.5), FeatureEffect("title", "x" * 200, -0.25))
    labels = np.array(["Alien"], dtype=object)
    both = explanation_chart(Explanation(labels, np.array([5.0]), np.array([0.1]), 4.2, features), row=1, column=2)
    assert both.title.startswith("Effects of entries and features on the prediction of 4.200 for 1 and 2: Alien (5)")
    drawn = str(both)
    assert drawn.count("<rect") == 3
    assert drawn.index(">Alien (5)</text>") < drawn.index(">genres: Horror</text>")
    assert "x…</text>" in drawn  # what a feature says may be long, too
    none = Explanation(labels[:0], np.empty(0), np.empty(0), 4.2, features)
    assert str(explanation_chart(none, row=None, column=2)).count("<rect") == 2
