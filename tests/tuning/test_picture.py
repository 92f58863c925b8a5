"""The picture of a study: readable, and the same for the same importances."""

import sys
from pathlib import Path

import pytest

from deepmf.errors import BadSetting, MissingDependency
from deepmf.tuning.picture import draw_importances

IMPORTANCES = {"penalty": 0.75, "latent_size": 0.25}


@pytest.mark.slow
def test_it_names_every_setting(tmp_path: Path) -> None:
    draw_importances(IMPORTANCES, tmp_path / "a.svg", title="als")
    text = (tmp_path / "a.svg").read_text()
    assert all(f">{word}<" in text for word in ("penalty", "latent_size", "75 %", "25 %", "importance, %", "als"))
    draw_importances(IMPORTANCES, tmp_path / "b.svg", title="als")
    assert (tmp_path / "b.svg").read_text() == text
    draw_importances(IMPORTANCES, tmp_path / "a.png", title="als")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSetting, match=r"must end in .svg or .png; got"):
        draw_importances(IMPORTANCES, tmp_path / "a.pdf", title="als")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependency, match=r"pip install 'deepmf\[plots\]'"):
        draw_importances(IMPORTANCES, tmp_path / "a.svg", title="als")
    assert list(tmp_path.iterdir()) == []
