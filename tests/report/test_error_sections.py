"""The sections on errors: order, thresholds and differences."""

import re

import numpy as np
import pytest
from tests.report.conftest import html_of, lines_of

from deepmf.data.splits import AreaSplit
from deepmf.formatting import format_amount, format_difference
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means
from deepmf.models.model import Model
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.report.content import LeftOut, Section
from deepmf.report.error_sections import area_section, cold_start_section, column_section
from deepmf.report.findings import Findings, find


@pytest.fixture(scope="module")
def found(split: AreaSplit, entries: ObservedMatrix) -> Findings:
    return find(ALS(latent_size=2, epochs=2).fit(split.train).extend(split.extension), entries)


def test_areas_against_the_means(found: Findings) -> None:
    head, *lines = lines_of(html_of(area_section(found)), "Errors by area")
    assert head == "area|entries|RMSE|MAE|RMSE of levels|MAE of levels|RMSE, means|difference".split("|")
    assert found.baseline is not None
    for line, own, means in zip(lines, found.measured.areas, found.baseline.areas, strict=True):
        assert line[:4] == [own.area, str(own.n_entries), format_amount(own.rmse), format_amount(own.mae)]
        assert line[4:6] == [format_amount(own.level_rmse), format_amount(own.level_mae)]
        assert line[6:] == [format_amount(means.rmse), format_difference(own.rmse, means.rmse)]


def test_median_levels_stand_beside_the_rounded_ones(split: AreaSplit) -> None:
    settings = {"hidden_sizes": (8,), "latent_size": 4, "dropout": 0.1, "epochs": 2, "views": 2, "device": "cpu"}
    found = find(OrdinalDMF(seed=0, **settings).fit(split.train), split.test["I"])
    head, line = lines_of(html_of(area_section(found)), "Errors by area")
    assert head[4:8] == "RMSE of levels|MAE of levels|RMSE of median levels|MAE of median levels".split("|")
    (own,) = found.measured.areas[:1]
    assert line[4:8] == [
        format_amount(each) for each in (own.level_rmse, own.level_mae, own.median_rmse, own.median_mae)
    ]


def test_one_area_is_not_repeated_as_all(split: AreaSplit) -> None:
    section = html_of(area_section(find(Means().fit(split.train), split.test["I"])))
    assert [line[0] for line in lines_of(section, "Errors by area")] == ["area", "I"]
    assert "new row" not in section


def test_the_cold_start_has_a_line_for_each_group(found: Findings) -> None:
    lines = lines_of(html_of(cold_start_section(found)), "RMSE by entries of the row")
    assert lines[0] == ["entries of the row", "test entries", "RMSE, ALS", "RMSE, means"]
    assert found.baseline is not None
    assert [line[2] for line in lines[1:]] == [format_amount(group.rmse) for group in found.measured.cold_start]
    assert [line[3] for line in lines[1:]] == [format_amount(group.rmse) for group in found.baseline.cold_start]


def columns_of(errors: dict[str, tuple[int, float]]) -> Section | LeftOut:
    """Return the section where each column has so many test entries, all off by so much from the 3 that is answered."""
    scale = Scale(low=0, high=10)
    train = ObservedMatrix.from_array(np.full((60, len(errors)), 3.0), scale, column_labels=list(errors))
    columns = [name for name, (n_entries, _) in errors.items() for _ in range(n_entries)]
    rows = [at for n_entries, _ in errors.values() for at in range(n_entries)]
    values = [3 + off for n_entries, off in errors.values() for _ in range(n_entries)]
    return column_section(find(Means().fit(train), ObservedMatrix.from_entries(rows, columns, values, scale)))


def test_worst_first_and_best_first_of_those_with_enough() -> None:
    section = html_of(
        columns_of({"a": (20, 1), "b": (40, 4), "c": (19, 7), "d": (25, 0.5), "e": (30, 2), "f": (19, 0.0)})
    )
    worst, best = (lines_of(section, f"Predicted {end}")[1:] for end in ("worst", "best"))
    assert worst == [["b", "40", "4.000 ± 0.000"], ["e", "30", "2.000 ± 0.000"]]
    assert best == [["d", "25", "0.500 ± 0.000"], ["a", "20", "1.000 ± 0.000"]]
    assert "Of 6 columns with test entries, 4 have at least 20; the median of their RMSE is 1.500." in section


def test_at_most_ten_from_either_end() -> None:
    section = html_of(columns_of({f"{number:02}": (20, number / 10) for number in range(30)}))
    assert [line[0] for line in lines_of(section, "Predicted worst")[1:]] == [f"{at}" for at in range(29, 19, -1)]
    assert [line[0] for line in lines_of(section, "Predicted best")[1:]] == [f"{at:02}" for at in range(10)]


def test_too_few_to_compare() -> None:
    left_out = columns_of({"a": (20, 1), "b": (19, 1)})
    assert isinstance(left_out, LeftOut)
    assert left_out.reason.startswith("only one column has at least 20 test entries")


def test_errors_by_area_have_error_bars(entries: ObservedMatrix, discrete: Model) -> None:
    found = find(discrete, entries)
    section = html_of(area_section(found))
    assert len(re.findall("<title>[^<]* ± ", section)) == 10  # four areas and all, of the model and of the means
    part = found.measured.areas[0]
    assert f"<title>I, DMFD: {part.rmse:.5g} ± {part.margin:.5g}</title>" in section
