"""The section on the data: counts and shares that can be counted by hand."""

import numpy as np
import pytest
from tests.report.conftest import html_of, lines_of

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.means import Means
from deepmf.report.data_section import data_section, group_name
from deepmf.report.findings import find

STARS = Scale([1, 2, 3])


def percent(number: str) -> str:
    return f"{number}\N{NO-BREAK SPACE}%"


@pytest.fixture(scope="module")
def section() -> str:
    train = ObservedMatrix.from_entries(
        [0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [1, 1, 1, 2, 3], STARS, column_labels=range(4)
    )
    new = ObservedMatrix.from_entries([7, 7], [0, 1], [3, 2], STARS)
    test = ObservedMatrix.from_entries([0, 7], [2, 3], [3, 2], STARS)
    return html_of(data_section(find(Means().fit(train).extend(new), test)))


def test_how_much_there_is(section: str) -> None:
    assert lines_of(section, "How much there is") == [
        ["", "training", "extension", "test"],
        ["entries", "5", "2", "2"],
        ["rows", "3", "1", "2"],
        ["columns", "2", "2", "2"],
        ["density", percent("83.33"), percent("100.00"), percent("50.00")],
        ["mean", "1.600", "2.500", "2.500"],
        ["standard deviation", "0.800", "0.500", "0.500"],
    ]


def test_which_values_there_are(section: str) -> None:
    assert lines_of(section, "Share of entries by value") == [
        ["value", "training", "test"],
        ["1", percent("60.0"), percent("0.0")],
        ["2", percent("20.0"), percent("50.0")],
        ["3", percent("20.0"), percent("50.0")],
    ]
    assert "the most frequent value in training is 1" in section


def test_entries_per_row_and_column(section: str) -> None:
    assert lines_of(section, "Training entries per row")[1:] == [["1", "1"], ["2–4", "2"]]
    assert lines_of(section, "Training entries per column")[1:] == [["0", "2"], ["1", "0"], ["2–4", "2"]]


def test_values_without_levels_are_counted_in_bins() -> None:
    train = ObservedMatrix.from_array(np.linspace(0, 10, 100).reshape(10, 10))
    test = ObservedMatrix.from_entries([0], [0], [20.0], Scale(low=0, high=30))  # beyond what training showed
    lines = lines_of(html_of(data_section(find(Means().fit(train), test))), "Share of entries by value")[1:]
    assert [line[0] for line in lines][::19] == ["0.5", "19.5"]
    assert [line[2] for line in lines] == [percent("0.0")] * 19 + [percent("100.0")]
    assert [line[1] for line in lines[11:]] == [percent("0.0")] * 9  # nothing of training lies above 10


def test_names_of_groups() -> None:
    assert [group_name(*ends) for ends in ((0, 0), (2, 4), (500, None))] == ["0", "2–4", "500+"]


def test_what_was_forgotten_is_told() -> None:
    train = ObservedMatrix.from_entries([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 2], STARS)
    test = ObservedMatrix.from_entries([0], [0], [3], STARS)
    model = Means().fit(train)
    assert "forgotten" not in html_of(data_section(find(model, test)))
    less = model.forget(rows=[0])
    assert "Of the training entries, 2 were replaced or forgotten since." in html_of(data_section(find(less, test)))
