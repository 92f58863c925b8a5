"""Explanations in the report: of the pairs that were asked for, and of no others."""

from pathlib import Path

import pytest
from tests.report.conftest import html_of, lines_of

from deepmf.data.splits import AreaSplit
from deepmf.errors import UnknownLabel
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.als import ALS
from deepmf.models.model import Model
from deepmf.report.content import LeftOut
from deepmf.report.explanation_section import explanation_section
from deepmf.report.findings import find
from deepmf.report.page import write_report


@pytest.fixture(scope="module")
def model(split: AreaSplit) -> Model:
    return ALS(latent_size=2, epochs=2).fit(split.train)


def test_bars_and_numbers_are_those_of_explain(split: AreaSplit, model: Model) -> None:
    row, column, value = (part.tolist()[0] for part in split.test["I"].entries())
    page = html_of(explanation_section(find(model, split.test["I"], explain=[(row, column)])))
    found = model.explain(row, column, 10)
    lines = lines_of(page, f"Effects on {column} for {row}")[1:]
    assert [line[0] for line in lines] == found.labels.tolist()
    assert [line[2].replace("−", "-") for line in lines] == [f"{effect:+.3f}" for effect in found.effects]
    assert f"{column} for {row}: {found.prediction:.3f}, {value:g} in the test" in page


def test_features_have_bars_and_numbers_too(split: AreaSplit) -> None:
    train = split.train
    people = Features.from_columns(train.row_labels, {"group": [str(k % 2) for k in range(train.shape[0])]})
    described = ALS(latent_size=2, epochs=2).fit(train, row_features=people)
    row, column, _ = (part.tolist()[0] for part in split.test["I"].entries())
    page = html_of(explanation_section(find(described, split.test["I"], explain=[(row, column)])))
    (feature,) = described.explain(row, column, 10).features
    lines = lines_of(page, f"Effects on {column} for {row}")
    assert lines[-1] == ["group", feature.value, f"{feature.effect:+.3f}".replace("-", "−")]
    assert "features of the row" in page and f"group: {feature.value}" in page


def test_a_pair_that_is_not_in_the_test(split: AreaSplit, model: Model) -> None:
    row, column, _ = (part.tolist()[0] for part in split.train.entries())
    page = html_of(explanation_section(find(model, split.test["I"], explain=[(row, column)])))
    assert f"{column} for {row}: " in page
    assert "in the test" not in page


def test_unless_asked_for_no_row_is_shown(split: AreaSplit, model: Model, tmp_path: Path) -> None:
    left_out = explanation_section(find(model, split.test["I"]))
    assert isinstance(left_out, LeftOut)
    assert "no pair was chosen" in left_out.reason
    write_report(model, split.test["I"], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not any(row in page for row in split.train.row_labels)


def test_an_unknown_pair_is_refused(split: AreaSplit, model: Model, tmp_path: Path) -> None:
    test: ObservedMatrix = split.test["I"]
    with pytest.raises(UnknownLabel, match="'nobody' is not known"):
        write_report(model, test, tmp_path / "report.html", explain=[("nobody", test.column_labels[0])])
    assert list(tmp_path.iterdir()) == []
