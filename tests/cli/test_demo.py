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
    assert len(newcomer["best"]) == 5
    assert not newcomer["best"].keys() & newcomer["entries"].keys()
    out = run("demo", "--report", report).out
    for part in ("The four areas", "RMSE", "A new row", "deepmf fit ratings.csv"):
        assert part in out
