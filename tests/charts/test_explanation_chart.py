"""The chart of an explanation: a bar for each entry, with its value, whatever its label."""

import numpy as np

from deepmf.charts.explanation_chart import explanation_chart
from deepmf.models.explanation import Explanation


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
