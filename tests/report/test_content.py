"""Templates: whatever is not markup already is escaped, wherever it goes, and nothing is left out in silence."""

import pytest
from jinja2 import UndefinedError
from tests.report.conftest import lines_of

from deepmf.plots import plot_bars
from deepmf.report.content import Figure, Section, Table, render_template, shorten

EVIL = """<script>alert("1")</script>&'"""
TABLE = Table(EVIL, [EVIL, EVIL], [[EVIL, EVIL]])
FIGURE = Figure(EVIL, plot_bars([EVIL], {EVIL: [1.0], "other": [2.0]}), EVIL, numbers=TABLE)
EVERY = {
    "areas.html": {"errors": FIGURE, "meanings": [(EVIL, EVIL)], "baseline": EVIL, "numbers": TABLE},
    "calibration.html": {
        "reliability": FIGURE, "error": EVIL, "wanted_coverage": EVIL, "coverage": EVIL, "width": EVIL,
    },
    "cold_start.html": {"errors": FIGURE, "numbers": TABLE},
    "columns.html": {"sentence": EVIL, "worst": TABLE, "best": TABLE},
    "confusion.html": {"map": FIGURE, "hits": EVIL, "ends": EVIL},
    "data.html": {"sizes": TABLE, "scale": EVIL, "dropped": EVIL, "figures": [FIGURE]},
    "learning.html": {"sentence": EVIL, "curves": [FIGURE]},
    "intervals.html": {"coverage": FIGURE, "numbers": TABLE},
    "comparison.html": {"figures": [FIGURE], "sentences": [EVIL], "tables": [TABLE]},
    "ranking.html": {"scores": FIGURE, "meanings": [(EVIL, EVIL)], "sentence": EVIL, "steered": FIGURE,
                     "tables": [TABLE]},
    "settings.html": {"settings": TABLE, "runtime": TABLE},
}  # fmt: skip


def render_page(template: str) -> str:
    section = Section(EVIL, EVIL, template, EVERY[template])
    left_out = [{"title": EVIL, "reason": EVIL}]
    content = {"title": EVIL, "summary": EVIL, "cautions": [EVIL], "tiles": [(EVIL, EVIL)]}
    return render_template("page.html", **content, sections=[section], left_out=left_out)


@pytest.mark.parametrize("template", EVERY)
def test_nothing_gets_through(template: str) -> None:
    page = render_page(template)
    assert "<script" not in page
    assert '"&gt;' not in page  # what would leave an attribute
    assert "&lt;script&gt;alert(" in page


@pytest.mark.slow
@pytest.mark.parametrize("template", EVERY)
def test_what_is_missing_is_an_error(template: str) -> None:
    for name in EVERY[template]:
        content = {key: value for key, value in EVERY[template].items() if key != name}
        with pytest.raises(UndefinedError, match=name):
            render_template("section.html", section=Section("title", "how", template, content))


def test_tables_name_their_lines_and_columns() -> None:
    shown = Table("Sizes", ["part", "entries"], [["train", "3"], ["test", "1"]])
    page = render_template("settings.html", content={"settings": shown, "runtime": shown})
    assert page.count('<th scope="col">') == 4
    assert page.count('<th scope="row"><bdi>') == 4
    assert lines_of(page, "Sizes") == [["part", "entries"], ["train", "3"], ["test", "1"]]


def test_labels_are_cut_before_they_are_escaped() -> None:
    assert shorten("x" * 80) == "x" * 80
    assert shorten("x" * 81) == f"{'x' * 79}…"
    assert shorten(("a", 1)) == "('a', 1)"
    page = render_template("page.html", title="&" * 1000, summary="", cautions=[], tiles=[], sections=[], left_out=[])
    assert page.count("<h1><bdi>" + "&amp;" * 199 + "…</bdi></h1>") == 1  # never inside an escape
