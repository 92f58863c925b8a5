"""`deepmf demo`: everything it promises, on fewer ratings."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from deepmf.cli import demo


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "RATINGS", demo.RATINGS | {"n_rows": 120, "n_columns": 80})
    tiny = {"hidden_sizes": (16,), "latent_size": 8, "epochs": 4, "linear_iterations": 4}
    monkeypatch.setattr(demo, "SETTINGS", demo.SETTINGS | tiny)


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_json_has_everything(run: Any, tmp_path: Path) -> None:
    n_threads = torch.get_num_threads()
    report = tmp_path / "report.html"
    code, out, err = run("demo", "--seed", 1, "--json", "--report", report)
    assert (code, err) == (0, "")
    assert "OrdinalDMF on " in report.read_text()
    assert torch.get_num_threads() == n_threads
    shown = json.loads(out)
    assert shown["seed"] == 1
    assert shown["ratings"]["n_rows"] == 120
    assert [method["name"] for method in shown["methods"]] == [
        "means",
        "OrdinalDMF",
        "the truth itself",
    ]
    assert all(list(method["errors"]) == ["I", "II", "III", "IV"] for method in shown["methods"])
    assert all(
        shown["methods"][-1]["errors"]["I"] < method["errors"]["I"]
        for method in shown["methods"][:-1]
    )
    newcomer = shown["newcomer"]
    assert len(newcomer["entries"]) == len(demo.NEWCOMER_STARS)
    assert len(newcomer["best"]) == demo.N_BEST
    assert not newcomer["best"].keys() & newcomer["entries"].keys()


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_words(run: Any, tmp_path: Path) -> None:
    code, out, err = run("demo", "--report", tmp_path / "report.html")
    assert (code, err) == (0, "")
    for part in (
        "made-up people",
        "The four areas",
        "RMSE",
        "A new row",
        "ordered by",
        "deepmf fit ratings.csv",
    ):
        assert part in out


@pytest.mark.slow
def test_each_beats_the_one_before_in_every_area(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a third of the demo's cells, observed more densely."""
    monkeypatch.setattr(
        demo, "RATINGS", demo.RATINGS | {"n_rows": 800, "n_columns": 400, "density": 0.2}
    )
    shown = json.loads(run("demo", "--json", "--report", tmp_path / "report.html").out)
    means, ordinal, truth = (method["errors"] for method in shown["methods"])
    for area in ("I", "II", "III", "IV"):
        assert truth[area] < ordinal[area] < 0.95 * means[area]
