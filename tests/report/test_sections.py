"""The section on the data: counts and shares that can be counted by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.report.conftest import html_of, lines_of

from deepmf.data import AreaSplit, split_entries
from deepmf.evaluation.calibration import Calibration, ReliabilityBin
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.formatting import format_amount, format_difference
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.means import Means
from deepmf.models.neighbours import Neighbours, find_block
from deepmf.models.positions.curves import find_curves
from deepmf.report.content import LeftOut, Section, Table
from deepmf.report.findings import Findings, find
from deepmf.report.page import write_report
from deepmf.report.sections import (
    compute_hit_shares,
    make_area_section,
    make_calibration_section,
    make_cold_start_section,
    make_column_section,
    make_confusion_section,
    make_data_section,
    make_ranking_section,
    make_settings_section,
)
from deepmf.scoring.factors import Factors

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
    return html_of(make_data_section(find(Means().fit(train).extend(new), test)))


def test_how_much_there_is(section: str) -> None:
    assert lines_of(section, "Size") == [
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
    assert "training value is 1" in section


def test_entries_per_row_and_column(section: str) -> None:
    assert lines_of(section, "Training entries per row")[1:] == [["1", "1"], ["2–4", "2"]]
    assert lines_of(section, "Training entries per column")[1:] == [
        ["0", "2"],
        ["1", "0"],
        ["2–4", "2"],
    ]


def test_values_without_levels_are_counted_in_bins() -> None:
    train = ObservedMatrix.from_array(np.linspace(0, 10, 100).reshape(10, 10))
    # beyond what training showed
    test = ObservedMatrix.from_entries([0], [0], [20.0], Scale(low=0, high=30))
    lines = lines_of(
        html_of(make_data_section(find(Means().fit(train), test))), "Share of entries by value"
    )[1:]
    assert [line[0] for line in lines][::19] == ["0.5", "19.5"]
    assert [line[2] for line in lines] == [percent("0.0")] * 19 + [percent("100.0")]
    # nothing of training lies above 10
    assert [line[1] for line in lines[11:]] == [percent("0.0")] * 9


@pytest.mark.slow
def test_what_was_forgotten_is_told() -> None:
    train = ObservedMatrix.from_entries([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 2], STARS)
    test = ObservedMatrix.from_entries([0], [0], [3], STARS)
    model = Means().fit(train)
    assert "forgotten" not in html_of(make_data_section(find(model, test)))
    less = model.forget(rows=[0])
    assert "2 training entries were replaced or forgotten" in html_of(
        make_data_section(find(less, test))
    )


@pytest.fixture(scope="module")
def found(split: AreaSplit, entries: ObservedMatrix) -> Findings:
    return find(ALS(latent_size=2, epochs=2).fit(split.train).extend(split.extension), entries)


def test_areas_against_the_means(found: Findings) -> None:
    head, *lines = lines_of(html_of(make_area_section(found)), "Errors by area")
    assert (
        head
        == "area|entries|RMSE|MAE|RMSE of levels|MAE of levels|RMSE, means|difference".split("|")
    )
    assert found.baseline is not None
    for line, own, means in zip(lines, found.measured.areas, found.baseline.areas, strict=True):
        assert line[:4] == [
            own.area,
            str(own.n_entries),
            format_amount(own.rmse),
            format_amount(own.mae),
        ]
        assert line[4:6] == [format_amount(own.level_rmse), format_amount(own.level_mae)]
        assert line[6:] == [format_amount(means.rmse), format_difference(own.rmse, means.rmse)]


def test_the_cold_start_has_a_line_for_each_group(found: Findings) -> None:
    lines = lines_of(html_of(make_cold_start_section(found)), "RMSE by entries of the row")
    assert lines[0] == ["entries of the row", "test entries", "RMSE, ALS", "RMSE, means"]
    assert found.baseline is not None
    assert [line[2] for line in lines[1:]] == [
        format_amount(group.rmse) for group in found.measured.cold_start
    ]
    assert [line[3] for line in lines[1:]] == [
        format_amount(group.rmse) for group in found.baseline.cold_start
    ]


def columns_of(errors: dict[str, tuple[int, float]]) -> Section | LeftOut:
    """Return the section where each column has so many test entries, all off by so much from the 3
    that is answered."""
    scale = Scale(low=0, high=10)
    train = ObservedMatrix.from_array(
        np.full((60, len(errors)), 3.0), scale, column_labels=list(errors)
    )
    columns = [name for name, (n_entries, _) in errors.items() for _ in range(n_entries)]
    rows = [at for n_entries, _ in errors.values() for at in range(n_entries)]
    values = [3 + off for n_entries, off in errors.values() for _ in range(n_entries)]
    return make_column_section(
        find(Means().fit(train), ObservedMatrix.from_entries(rows, columns, values, scale))
    )


def test_worst_first_and_best_first_of_those_with_enough() -> None:
    section = html_of(
        columns_of(
            {"a": (20, 1), "b": (40, 4), "c": (19, 7), "d": (25, 0.5), "e": (30, 2), "f": (19, 0.0)}
        )
    )
    worst, best = (lines_of(section, f"{end} error")[1:] for end in ("Highest", "Lowest"))
    assert worst == [["b", "40", "4.000 ± 0.000"], ["e", "30", "2.000 ± 0.000"]]
    assert best == [["d", "25", "0.500 ± 0.000"], ["a", "20", "1.000 ± 0.000"]]
    assert re.search("6 columns .*4 have at least 20; .*1.500", section)


def test_errors_by_area_have_error_bars(entries: ObservedMatrix, discrete: Model) -> None:
    found = find(discrete, entries)
    section = html_of(make_area_section(found))
    part = found.measured.areas[0]
    assert f">{part.n_entries}</text>" in section  # below the name of the area


@pytest.fixture(scope="module")
def model(split: AreaSplit) -> Model:
    return ALS(latent_size=2, epochs=2).fit(split.train)


@pytest.mark.slow
def test_no_row_is_shown(split: AreaSplit, model: Model, tmp_path: Path) -> None:
    write_report(model, split.test["I"], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not any(row in page for row in split.train.row_labels)


def test_confusion_in_words_and_numbers(entries: ObservedMatrix, discrete: Model) -> None:
    counts = np.zeros((5, 5), dtype=np.int64)
    counts[0, 0], counts[0, 1], counts[2, 4], counts[4, 4] = 1, 3, 2, 2
    found = replace(find(discrete, entries), confusion=counts)
    assert compute_hit_shares(found) == (3 / 8, 6 / 8)
    section = html_of(make_confusion_section(found))
    assert f"exactly right for {percent('37.5')} of the test entries" in section
    assert f"at most one level off for {percent('75.0')}" in section
    lines = lines_of(section, "Predicted levels (across) for each true level (down)")
    assert lines[1] == ["1", "4", percent("25"), percent("75"), *[percent("0")] * 3]
    assert lines[2] == ["2", "0", *[percent("0")] * 5]  # a level without test entries


def test_calibration_in_words_and_numbers(entries: ObservedMatrix, discrete: Model) -> None:
    held = Calibration(
        10, (ReliabilityBin(30, 0.1, 0.2), ReliabilityBin(20, 0.8, 0.65)), 0.0123, 0.9, 0.945, 1.75
    )
    section = html_of(make_calibration_section(replace(find(discrete, entries), calibration=held)))
    for number in (percent("1.23"), percent("94.5"), "1.750"):
        assert f"<dt>{number}</dt>" in section
    assert lines_of(section, "Forecasts by probability")[1:] == [
        [percent("10.0"), percent("20.0"), "30"],
        [percent("80.0"), percent("65.0"), "20"],
    ]


def test_certainty_is_shown_by_the_number_of_known_entries(
    entries: ObservedMatrix, probable: Model
) -> None:
    found = find(probable, entries)
    lines = lines_of(
        html_of(make_calibration_section(found)), "Probabilities by entries of the row"
    )
    assert lines[0][-1] == "calibration error" and len(lines) == 1 + len(found.certainty)
    counts = probable.row_counts(entries.entries()[0])
    for line, group in zip(lines[1:], found.certainty, strict=True):
        inside = (counts >= group.first) & (counts <= (group.last or counts.max()))
        rows, columns, values = (part[inside] for part in entries.entries())
        lower, upper = probable.predict_interval(rows, columns, coverage=0.9)
        held = np.mean((lower <= values) & (values <= upper))
        assert line[1] == str(values.size) and line[2] == percent(f"{100 * held:.1f}")


def test_what_a_model_does_not_have_is_said(split: AreaSplit, discrete: Model) -> None:
    left_out = make_calibration_section(find(discrete, split.test["I"]))
    assert isinstance(left_out, LeftOut) and left_out.reason.startswith("DMFD predicts no")


def test_intervals_of_real_values(probable: Model) -> None:
    reals = ObservedMatrix.from_array(np.random.default_rng(0).normal(size=(30, 30)))
    found = find(type(probable)().fit(reals), reals)
    assert found.intervals is not None
    section = html_of(make_calibration_section(found))
    lines = lines_of(section, "Intervals by nominal coverage")
    assert [line[0] for line in lines] == [
        "nominal",
        *(f"{n}\N{NO-BREAK SPACE}%" for n in (50, 80, 90, 95)),
    ]
    for line, held in zip(lines[1:], found.intervals, strict=True):
        assert line[1].startswith(f"{100 * held.coverage:.1f}\N{NO-BREAK SPACE}% ± ")
        assert line[2:] == ["900", f"{held.width:.3f}"]
    shown = make_calibration_section(found)
    assert isinstance(shown, Section)
    (drawn,) = shown.figures[0].plot.containers
    assert len(drawn[2][0].get_segments()) == 4  # error bars


def test_the_numbers_are_those_of_the_evaluation(entries: ObservedMatrix, discrete: Model) -> None:
    ranked = evaluate_ranking(discrete, entries, n=3, relevant=5)
    page = html_of(make_ranking_section(find(discrete, entries, ranking=ranked)))
    lines = lines_of(page, "Scores at 3")
    assert lines[0] == ["", "DMFD", "popularity"]
    assert [line[0] for line in lines[1:]] == [
        *("NDCG", "recall", "precision", "MRR", "MAP", "hit rate"),
        *("distinct columns", "coverage", "novelty"),
        *("Gini", "share of tail", "mean popularity", "list similarity"),
    ]
    assert lines[3][1] == f"{ranked.model.precision:.3f} ± {ranked.model.margins['precision']:.3f}"
    assert lines[1][2].startswith(f"{ranked.popularity.ndcg:.3f} ± ")
    assert "relevant: at least 5" in page
    assert f"{ranked.n_without} rows without one" in page


def test_of_very_many_rows_some_are_drawn(entries: ObservedMatrix, discrete: Model) -> None:
    found = find(discrete, entries, most_ranked=300)
    assert found.ranking is not None
    assert found.ranking.n_rows == 10  # times 30 columns
    assert "random sample" in html_of(make_ranking_section(found))


def test_where_there_is_nothing_to_rank_the_reason_is_given(split: AreaSplit) -> None:
    reals = ObservedMatrix.from_array(np.random.default_rng(0).normal(size=(20, 20)))
    left_out = make_ranking_section(find(Means().fit(reals), reals))
    assert isinstance(left_out, LeftOut)
    assert "seen all test entries" in left_out.reason
    seen = make_ranking_section(find(ALS(latent_size=2, epochs=1).fit(split.train), split.train))
    assert isinstance(seen, LeftOut)
    assert "has seen all" in seen.reason


@pytest.mark.slow
def test_members_and_the_curves_of_smooth_factors_are_shown() -> None:
    at = np.arange(240.0)
    table = np.sin(at / 7.0) * np.linspace(-2.0, 3.0, 10)[:, None] + np.cos(at / 17.0)
    table += 0.2 * np.random.default_rng(0).normal(size=table.shape)
    rows, columns = np.nonzero(np.random.default_rng(1).random(table.shape) < 0.3)
    matrix = ObservedMatrix.from_entries(rows, columns, table[rows, columns])
    split = split_entries(matrix, train=0.9, validation=0.0, test=0.1, seed=0)
    times = Features.from_columns(np.arange(240), {"hour": at}, kinds={"hour": "position"})
    model = BayesianMF(effort="quick", seed=0, device="cpu", presence=None)
    model.fit(split.train, column_features=times)
    section = make_settings_section(find(model, split.test))
    assert isinstance(section, Section) and isinstance(section.tables[0], Table)
    words = {line[0]: line[2] for line in section.tables[0].lines}
    assert words["positions"].startswith("fitted") and "0." in words["sampler"]
    (figure,) = section.figures
    assert figure.plot.get_xlabel() == "hour"
    member = model.predictor_.members["positions"].fitted
    assert isinstance(member, Factors)
    curves = find_curves(member, model.entries_)
    at = np.sort(split.train.columns.array).astype(float)  # those with entries
    np.testing.assert_allclose(curves.positions, at, atol=1e-4)
    waves = np.stack([np.sin(at / 7.0), np.cos(at / 17.0)], axis=1)
    explained = waves - waves.mean(axis=0)
    fit = np.linalg.lstsq(explained, curves.curves[0], rcond=None)[0]
    assert np.std(explained @ fit - curves.curves[0]) < 0.1 * np.std(curves.curves[0])


@pytest.mark.slow
def test_columns_that_predict_each_other_are_shown_with_what_is_missing() -> None:
    random = np.random.default_rng(0)
    causes = random.integers(3, size=(150, 25))
    table = np.repeat(causes, 6, axis=1).astype(float)
    is_known = random.random(table.shape) < 0.85
    matrix = ObservedMatrix.from_entries(*np.nonzero(is_known), table[is_known])
    split = split_entries(matrix, train=0.9, validation=0.0, test=0.1, seed=0)
    model = BayesianMF(effort="quick", seed=0, device="cpu", presence=None).fit(split.train)
    member = model.predictor_.members["neighbours"].fitted
    assert isinstance(member, Neighbours)
    block = find_block(member, model.entries_, n_rows=12)
    assert len(np.unique(block.columns)) == block.columns.size
    assert np.all(np.isnan(block.values).any(axis=1))
    section = make_settings_section(find(model, split.test))
    assert isinstance(section, Section)
    (figure,) = section.figures
    assert "nearest" in figure.title and "orange" in figure.description
    n_patches = sum(len(patch.get_path().vertices) for patch in figure.plot.patches)
    assert n_patches == 5 * 30 * block.columns.size
