"""The page: every section says how to read it, what is absent is named, and nothing breaks out of
it."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.conftest import TINY, html_of, relabelled

from deepmf.data import AreaSplit, split_entries
from deepmf.datasets import generate
from deepmf.errors import CannotSave, UnknownLabel
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.dmf import DMF
from deepmf.models.dmfd import DMFD
from deepmf.models.means import Means
from deepmf.report import write_report
from deepmf.report.content import LeftOut, Section
from deepmf.report.findings import Findings, find
from deepmf.report.page import render_report
from deepmf.report.sections import SECTIONS, make_learning_section
from deepmf.training.history import EpochRecord, History

VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Checks that tags are closed in order, and gathers what is in the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in self.open:
            self.texts.setdefault(tag, []).append(data)

    def text(self, tag: str) -> str:
        return "".join(self.texts.get(tag, []))


def page_of(model: Model, test: ObservedMatrix, **named: Any) -> Outline:
    return Outline(render_report(find(model, test), **named))


@pytest.fixture(scope="module")
def found(entries: ObservedMatrix, discrete: Model) -> Findings:
    """The findings about a model with levels."""
    return find(discrete, entries)


@pytest.fixture(scope="module")
def page(entries: ObservedMatrix, discrete: Model) -> Outline:
    return page_of(discrete, entries)


def titles(page: Outline) -> list[str]:
    return page.texts["h2"]


@pytest.mark.slow
def test_sections_of_a_model_with_levels(entries: ObservedMatrix, page: Outline) -> None:
    assert titles(page) == [
        "The data",
        "Error by area",
        "Confusion of levels",
        "Cold start",
        "Worst and best columns",
        "Ranking",
        "Learning curve",
        "Settings",
    ]
    assert "calibration (DMFD" in page.text("footer")
    assert page.texts["title"] == [
        f"DMFD on {entries.n_entries} test entries",
        *page.texts["title"][1:],
    ]


@pytest.mark.slow
def test_sections_of_a_model_with_distributions(entries: ObservedMatrix, probable: Model) -> None:
    page = page_of(probable, entries)
    assert "Calibration" in titles(page)
    assert "Expected calibration error" in page.text("dd")
    assert "Coverage of the 90\N{NO-BREAK SPACE}% interval" in page.text("dd")
    assert "learning curve (Probable" in page.text("footer")
    assert "This model is the baseline itself" in page.text("main")


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_says_how_to_read_it(
    entries: ObservedMatrix, found: Findings, probable: Model, section: Any
) -> None:
    made = section(found)
    if isinstance(made, LeftOut):
        made = section(find(probable, entries))
    assert isinstance(made, Section)
    assert made.how.endswith(".")
    assert len(made.how) < 400


@pytest.mark.slow
def test_the_numbers_are_those_of_the_findings(found: Findings, page: Outline) -> None:
    assert found.baseline is not None
    for part in (*found.measured.areas, *found.baseline.areas):
        assert f"{part.rmse:.3f}" in page.text("td")
    ratio = found.measured.overall.rmse / found.baseline.overall.rmse - 1
    assert f"{'+' if ratio > 0 else '−'}{abs(100 * ratio):.1f}\N{NO-BREAK SPACE}%" in page.text(
        "dd"
    )
    assert f"{found.measured.overall.mae:.3f} on average" in page.text("header")


@pytest.mark.slow
def test_the_page_needs_nothing_but_itself(page: Outline) -> None:
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "video", "form", "base"}
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "xlink:href", "action"):
            target = attributes.get(name)
            assert target is None or target.startswith("#") or target == "data:,", (
                tag,
                name,
                target,
            )
        assert not any(name.startswith("on") for name in attributes)
    assert "url(" not in page.text("style")
    assert "@import" not in page.text("style")
    policy = [attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


@pytest.mark.slow
def test_pictures_and_tables_are_told_to_those_who_do_not_see_them(page: Outline) -> None:
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(pictures) == 9
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert all(
        picture["role"] == "img" and len(picture["aria-label"] or "") > 20 for picture in pictures
    )
    assert all(
        attributes.get("scope") in ("row", "col") for tag, attributes in page.tags if tag == "th"
    )
    anchors = {attributes["id"] for tag, attributes in page.tags if tag == "h2"}
    assert {f"#{anchor}" for anchor in anchors} == {
        attributes["href"] for tag, attributes in page.tags if tag == "a"
    }
    assert next(attributes for tag, attributes in page.tags if tag == "html") == {"lang": "en"}


@pytest.mark.slow
def test_labels_stay_text(split: AreaSplit) -> None:
    evil = {
        0: "<script>alert(1)</script>",
        1: "</style></table>&amp;",
        2: "x" * 5000,
        3: "\N{RIGHT-TO-LEFT OVERRIDE}abc",
    }
    evil |= {4: "null \x00", 5: '"><img src=x onerror=alert(1)>'}
    matrix = relabelled(generate(300, 8, density=0.9, seed=0).matrix, evil)
    parts = split_entries(matrix, train=0.5, validation=0.0, test=0.5, seed=0)
    page = page_of(ALS(latent_size=2, epochs=2).fit(parts.train), parts.test, title=evil[0])
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert page.text("h1") == evil[0]
    assert evil[1] in page.text("table")
    assert "x" * 79 + "…" in page.text("table")
    assert "x" * 81 not in page.text("table")


def split_of(**generator: Any) -> Any:
    settings: dict[str, Any] = {"n_rows": 80, "n_columns": 20, "density": 0.5} | generator
    return split_entries(
        generate(**settings, seed=0).matrix, train=0.7, validation=0.1, test=0.2, seed=0
    )


@pytest.mark.slow
def test_a_scale_without_levels() -> None:
    parts = split_of(levels=None)
    page = page_of(DMF(**TINY).fit(parts.train), parts.test)
    assert "confusion of levels (the scale" in page.text("footer")
    assert "exactly the right level" not in page.text("dt")
    assert "no validation entries; the weights are those of epoch 6" in page.text("p")
    assert "RMSE on the validation entries" not in page.text("main")


@pytest.mark.slow
@pytest.mark.parametrize("levels", [[0, 1], np.arange(0.25, 10.25, 0.25), [1, 10, 100, 1000]])
def test_few_many_and_uneven_levels(levels: Any) -> None:
    parts = split_of(levels=levels)
    page = page_of(DMFD(**TINY).fit(parts.train, parts.validation), parts.test)
    assert "Confusion of levels" in titles(page)


@pytest.mark.slow
def test_one_test_entry_is_not_enough(split: AreaSplit) -> None:
    page = page_of(Means().fit(split.train), split.test["I"].take_entries(np.array([3])))
    assert "With only 1 test entry" in page.text("header")
    assert "no column has at least 20 test entries" in page.text("footer")


@pytest.mark.slow
def test_entries_that_were_seen_are_no_test(split: AreaSplit) -> None:
    n_entries = split.train.n_entries
    said = page_of(Means().fit(split.train), split.train).text("header")
    assert f"The model has seen {n_entries:,} of the {n_entries:,} test entries" in said


def learned_with(split: AreaSplit, losses: list[Any], **known: Any) -> Section | LeftOut:
    """Return the section on a model that was learned with these losses, and errors a tenth of
    them."""
    model = Means().fit(split.train)
    records = [
        EpochRecord(epoch, loss, None if loss is None else loss / 10, None, seconds=36.0)
        for epoch, loss in enumerate(losses)
    ]
    model.history_ = History(records, **known)
    return make_learning_section(find(model, split.test["I"]))


def with_history(split: AreaSplit, losses: list[Any], **known: Any) -> Outline:
    return Outline(html_of(learned_with(split, losses, **known)))


STAGES = {"branches": 0.1, "refined": 0.08}


@pytest.mark.slow
def test_the_best_epoch_is_named(split: AreaSplit) -> None:
    best_epoch, losses = 5, [10 + 5 * math.cos(epoch) for epoch in range(10)]
    losses[best_epoch] = 1.0
    page = with_history(
        split, losses, best_epoch=best_epoch, best_error=0.08, stages=STAGES, stopped="epochs"
    )
    assert (
        f"epoch {best_epoch + 1}, which has the lowest validation RMSE, 0.1000. "
        "The steps after training are not on the curve: 0.1000 by the branches, 0.0800 refined (-0.0200)."
    ) in page.text("p")


@pytest.mark.slow
def test_what_was_no_number_is_not_drawn(split: AreaSplit) -> None:
    page = with_history(
        split, [3.0, 2.0, None, math.inf], best_epoch=1, best_error=0.2, stopped="diverged"
    )
    described = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"]
    assert "Loss on the training entries: 3 in epoch 1, 2 in epoch 2" in described
    assert "the loss was no longer a number" in page.text("p")
    assert isinstance(learned_with(split, [None]), LeftOut)
    assert isinstance(learned_with(split, [3.0]), LeftOut)  # a point is no curve


def lead(page: str) -> str:
    """Return the first paragraph."""
    found = re.search(r'<p class="lead">(.*?)</p>', page, re.DOTALL)
    assert found is not None
    return found[1]


def test_a_report_begins_with_five_sentences(split: AreaSplit) -> None:
    model = BayesianMF(epochs=4, latent_size=2, device="cpu").fit(split.train)
    findings = find(model.extend(split.extension), split.test["II"])
    assert findings.calibration is not None
    said = lead(render_report(findings)).replace("\N{NO-BREAK SPACE}", " ")
    sentences = re.split(r"(?<=\.) (?=[A-Z])", said)
    assert [sentence.split()[0] for sentence in sentences[:4]] == ["The", "On", "Its", "Its"]
    assert len(sentences) == 5 and f"{findings.test.n_entries}" in sentences[1]
    assert f"{100 * findings.calibration.coverage:.1f}"[:4] in sentences[3]


def test_the_weakest_part_is_named(split: AreaSplit) -> None:
    findings = find(Means().fit(split.train).extend(split.extension), split.test["II"])
    overall = findings.measured.overall
    weak = replace(overall, area="II", n_entries=50, rmse=2.0 * overall.rmse)
    measured = replace(findings.measured, areas=[weak, overall])
    assert "Watch area II (new row, known column)" in lead(
        render_report(replace(findings, measured=measured))
    )
    even = replace(findings.measured, areas=[overall, overall], cold_start=[])
    assert "No area and no group" in lead(render_report(replace(findings, measured=even)))


@pytest.mark.slow
def test_the_file_is_written_whole_or_not_at_all(
    tmp_path: Path, split: AreaSplit, entries: ObservedMatrix
) -> None:
    path, model = tmp_path / "report.html", Means().fit(split.train)
    write_report(model, split.test["I"], path, title="half a character: \ud800")
    page = path.read_text(encoding="utf-8")
    assert "<title>half a character: ?</title>" in page
    assert page.startswith("<!doctype html>\n<html")
    assert page.endswith("</html>\n")
    with pytest.raises(UnknownLabel):
        write_report(model, entries, path)
    assert path.read_text(encoding="utf-8") == page
    with pytest.raises(CannotSave, match="folder"):
        write_report(model, split.test["I"], tmp_path / "none" / "report.html")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_what_the_model_does_not_know_is_told(split: AreaSplit, entries: ObservedMatrix) -> None:
    model = ALS(latent_size=2, epochs=2).fit(split.train)
    found = find(model, entries, unknown="fallback")
    page = render_report(found)
    Outline(page)
    n_unknown = entries.n_entries - split.test["I"].n_entries
    told = f"Of {entries.n_entries} test entries, {n_unknown} have a row or column that the model does not know"
    assert f"{told}; means predict them with an RMSE of {found.measured.areas[1].rmse:.3f}," in page
    assert "<dt>unknown</dt>" in page
    assert f"On {entries.n_entries} test entries, ALS is off by" in page
    assert f"{told}; this page leaves them out." in render_report(
        find(model, entries, unknown="nan")
    )
