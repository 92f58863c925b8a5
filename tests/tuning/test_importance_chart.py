"""The chart of a study: readable, and the same for the same importances."""

from pathlib import Path
from xml.dom import minidom

import pytest

from deepmf.errors import BadSetting
from deepmf.tuning.importance_chart import draw_importances

IMPORTANCES = {"penalty": 0.75, "latent_size": 0.25}


def test_it_names_every_setting(tmp_path: Path) -> None:
    draw_importances(IMPORTANCES, tmp_path / "a.svg", title="als on <a.csv>")
    text = (tmp_path / "a.svg").read_text()
    words = ("penalty", "latent_size", "75 %", "25 %", "importance, %", "als on &lt;a.csv&gt;")
    assert all(f">{word}<" in text for word in words)
    assert minidom.parseString(text).documentElement is not None
    draw_importances(IMPORTANCES, tmp_path / "b.svg", title="als on <a.csv>")
    assert (tmp_path / "b.svg").read_text() == text


@pytest.mark.parametrize("name", ["a.pdf", "a.png", "a"])
def test_what_cannot_be_drawn(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSetting, match=r"the name of a picture must end in .svg; got "):
        draw_importances(IMPORTANCES, tmp_path / name, title="als")
    assert list(tmp_path.iterdir()) == []
