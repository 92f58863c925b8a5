"""The sections on levels: shares, coverage and shifts that are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.report.conftest import TINY, html_of, lines_of

from deepmf.data.splits import AreaSplit
from deepmf.evaluation.calibration import Calibration, ReliabilityBin
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf.dmfd import DMFD
from deepmf.models.model import Model
from deepmf.report.findings import find
from deepmf.report.level_sections import boundary_section, calibration_section, confusion_section, hit_shares


def percent(number: str) -> str:
    return f"{number}\N{NO-BREAK SPACE}%"


def test_confusion_in_words_and_numbers(entries: ObservedMatrix, discrete: Model) -> None:
    counts = np.zeros((5, 5), dtype=np.int64)
    counts[0, 0], counts[0, 1], counts[2, 4], counts[4, 4] = 1, 3, 2, 2
    found = replace(find(discrete, entries), confusion=counts)
    assert hit_shares(found) == (3 / 8, 6 / 8)
    section = html_of(confusion_section(found))
    assert f"exactly right for {percent('37.5')} of the test entries" in section
    assert f"at most one level off for {percent('75.0')}" in section
    assert f"1 is {percent('12.5')} of the predictions and {percent('50.0')} of the truth" in section
    assert f"5 is {percent('50.0')} of the predictions and {percent('25.0')} of the truth" in section
    lines = lines_of(section, "Predicted levels (across) for each true level (down)")
    assert lines[1] == ["1", "4", percent("25"), percent("75"), *[percent("0")] * 3]
    assert lines[2] == ["2", "0", *[percent("0")] * 5]  # a level without test entries


def test_calibration_in_words_and_numbers(entries: ObservedMatrix, discrete: Model) -> None:
    held = Calibration(10, (ReliabilityBin(30, 0.1, 0.2), ReliabilityBin(20, 0.8, 0.65)), 0.0123, 0.9, 0.945, 1.75)
    section = html_of(calibration_section(replace(find(discrete, entries), calibration=held)))
    for number in (percent("1.23"), percent("94.5"), "1.750"):
        assert f"<strong>{number}</strong>" in section
    assert lines_of(section, "Forecasts by probability")[1:] == [
        [percent("10.0"), percent("20.0"), "30"],
        [percent("80.0"), percent("65.0"), "20"],
    ]


def test_boundaries_and_how_far_they_moved(split: AreaSplit) -> None:
    model = DMFD(**TINY).fit(split.train)
    with torch.no_grad():
        model.network_.quantizer.free_boundaries.copy_(torch.tensor([1.5, 2.25, 3.625, 4.5]))
    section = html_of(boundary_section(find(model, split.test["I"])))
    assert lines_of(section, "Boundaries between levels")[1:] == [
        ["1 and 2", "1.500", "1.500", "0"],
        ["2 and 3", "2.500", "2.250", "−0.25"],
        ["3 and 4", "3.500", "3.625", "+0.125"],
        ["4 and 5", "4.500", "4.500", "0"],
    ]
    assert "the one between 2 and 3: from 2.500 to 2.250." in section


@pytest.mark.parametrize("make", [calibration_section, boundary_section])
def test_what_a_model_does_not_have_is_said(split: AreaSplit, probable: Model, discrete: Model, make: object) -> None:
    model, reason = (discrete, "DMFD predicts no") if make is calibration_section else (probable, "Probable has none")
    assert make(find(model, split.test["I"])).reason.startswith(reason)  # type: ignore[operator]


def test_intervals_of_real_values(probable: Model) -> None:
    reals = ObservedMatrix.from_array(np.random.default_rng(0).normal(size=(30, 30)))
    found = find(type(probable)().fit(reals), reals)
    assert found.intervals is not None
    section = html_of(calibration_section(found))
    lines = lines_of(section, "Intervals by nominal coverage")
    assert [line[0] for line in lines] == ["nominal", *(f"{n}\N{NO-BREAK SPACE}%" for n in (50, 80, 90, 95))]
    for line, held in zip(lines[1:], found.intervals, strict=True):
        assert line[1].startswith(f"{100 * held.coverage:.1f}\N{NO-BREAK SPACE}% ± ")
        assert line[2] == f"{held.width:.3f}"
    (drawn,) = calibration_section(found).content["coverage"].plot.containers  # type: ignore[union-attr, attr-defined]
    assert len(drawn[2][0].get_segments()) == 4  # error bars
