"""The page in a real browser: light, dark, on a phone and on paper, without errors, overflow or
requests."""

from pathlib import Path
from typing import Any

import pytest
from tests.report.conftest import TINY, ProbableDMFD, relabelled
from tests.waiting import PATIENCE

from deepmf.data import split_entries
from deepmf.datasets import generate
from deepmf.evaluation.comparison import compare
from deepmf.models.means import Means
from deepmf.report import write_comparison
from deepmf.report.page import write_report
from deepmf.report.sections import SECTIONS

LABELS = {
    0: "<script>alert(1)</script>",
    1: "unbroken" * 40,
    2: "\N{RIGHT-TO-LEFT OVERRIDE}text",
    3: "a long " * 30,
}
LOOKS: dict[str, Any] = {
    "light": {"width": 1100, "color_scheme": "light", "media": "screen"},
    "dark": {"width": 1100, "color_scheme": "dark", "media": "screen"},
    "phone": {"width": 360, "color_scheme": "light", "media": "screen"},
    "paper": {"width": 700, "color_scheme": "dark", "media": "print"},
}

# Texts that stick out of their picture, as far as they can be seen.
STICKING_OUT = """
    () => [...document.querySelectorAll("svg text")].filter(text => {
        const inside = text.getBoundingClientRect(), frame = text.ownerSVGElement.getBoundingClientRect();
        return inside.width && (inside.left < frame.left - 3 || inside.right > frame.right + 9);
    }).map(text => text.textContent)
"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every section, many levels, and labels that would run or stick out."""
    levels = [level / 4 for level in range(1, 41)]
    matrix = relabelled(generate(200, 8, density=0.9, levels=levels, seed=0).matrix, LABELS)
    split = split_entries(matrix, train=0.5, validation=0.1, test=0.4, seed=0)
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(ProbableDMFD(**TINY).fit(split.train, split.validation), split.test, path)
    return path


@pytest.fixture(scope="module")
def comparison_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison in all areas, with names that would run or stick out."""
    matrix = generate(60, 30, density=0.5, seed=0).matrix
    models = {label: Means(shrinkage=n) for n, label in LABELS.items()}
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    write_comparison(compare(models, matrix, areas=True), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "n_sections"), [("page_file", len(SECTIONS)), ("comparison_file", 3)]
)
def test_in_every_look(
    browser: Any, request: pytest.FixtureRequest, which: str, n_sections: int
) -> None:
    page_file: Path = request.getfixturevalue(which)
    page, said, asked, backgrounds = browser.new_page(), [], [], {}
    page.set_default_timeout(1000 * PATIENCE)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    page.evaluate("() => document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.locator("section").count() == n_sections
    for look, wanted in LOOKS.items():
        page.set_viewport_size({"width": wanted["width"], "height": 800})
        page.emulate_media(media=wanted["media"], color_scheme=wanted["color_scheme"])
        assert page.evaluate("() => document.documentElement.scrollWidth") <= wanted["width"], look
        assert page.evaluate(STICKING_OUT) == [], look
        backgrounds[look] = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (
        backgrounds["light"] == backgrounds["phone"] == backgrounds["paper"] != backgrounds["dark"]
    )
    assert said == []
    assert [url for url in asked if url != "data:,"] == [page_file.as_uri()]
