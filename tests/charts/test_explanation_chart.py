"""The chart of an explanation: a bar for each entry, with its value, whatever its label, and for each feature."""

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


def test_a_bar_for_each_feature_below() -> None:
    features = (FeatureEffect("genres", "Sci-Fi <i>", 0.5), FeatureEffect("year", "1979", -0.25))
    found = Explanation(np.array(["Alien"]), np.array([5.0]), np.array([0.25]), 4.2, features)
    chart = explanation_chart(found, row="ann", column="Fargo")
    drawn = str(chart)
    assert drawn.count("<rect") == 3
    assert ">Alien (5)</text>" in drawn and ">year: 1979</text>" in drawn and "<i>" not in drawn
    assert drawn.index(">Alien (5)</text>") < drawn.index(">year: 1979</text>")
    assert chart.title.startswith("Effects of entries and features on the prediction of 4.200 for ann and Fargo: ")
    assert chart.title.endswith("genres: Sci-Fi <i> +0.500; year: 1979 −0.250")
    alone = Explanation(np.array([]), np.array([]), np.array([]), 4.2, features)
    assert str(explanation_chart(alone, row=None, column="Fargo")).count("<rect") == 2
