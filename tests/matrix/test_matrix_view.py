"""A matrix in a notebook: what it holds, with a plot of its values."""

import numpy as np
import pytest

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale


def test_levels() -> None:
    matrix = ObservedMatrix.from_array([[1, 2, np.nan], [2, 5, np.nan]])
    shown = matrix._repr_html_()
    assert "<strong>ObservedMatrix</strong>" in shown
    assert "<th>size</th><td>2 rows x 3 columns</td>" in shown
    assert "<td>4 (66.67\N{NO-BREAK SPACE}% observed)</td>" in shown
    assert "<th>entries per column</th><td>0 to 2, median 2; 1 without any</td>" in shown
    assert shown.count("<title>") == 3
    assert matrix.describe()._repr_html_() == shown.replace("ObservedMatrix", "Description")


def test_an_interval_and_many_levels() -> None:
    for values in (np.linspace(-1e6, 1e6, 200), np.arange(60.0)):
        assert "<svg" in ObservedMatrix.from_array(values.reshape(10, -1))._repr_html_()


@pytest.mark.parametrize("scale", [Scale([1, 2]), Scale(low=0, high=1)])
def test_no_entries(scale: Scale) -> None:
    shown = ObservedMatrix.from_array(np.full((2, 2), np.nan), scale)._repr_html_()
    assert "<svg" not in shown and "0 (0.00" in shown
