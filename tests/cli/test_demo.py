"""`deepmf demo`: everything it promises, on fewer ratings."""

import json
from typing import Any

import pytest
import torch

from deepmf.cli import demo


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "RATINGS", demo.RATINGS | {"n_rows": 120, "n_columns": 80})
    monkeypatch.setattr(demo, "SETTINGS", demo.SETTINGS | {"hidden_sizes": (16,), "latent_size": 8, "epochs": 4})


@pytest.mark.usefixtures("small")
def test_json_has_everything(run: Any) -> None:
    n_threads = torch.get_num_threads()
    code, out, err = run("demo", "--seed", 1, "--json")
    assert (code, err) == (0, "")
    assert torch.get_num_threads() == n_threads
    shown = json.loads(out)
    assert shown["seed"] == 1
    assert shown["ratings"]["n_rows"] == 120
    assert [method["name"] for method in shown["methods"]] == ["means", "DMF", "DMF-D", "the truth itself"]
    for method in shown["methods"]:
        assert list(method["errors"]) == ["rmse", "mae"]
        for by_area in method["errors"].values():
            assert list(by_area) == ["I", "II", "III", "IV"]
    truth = shown["methods"][-1]["errors"]["rmse"]
    assert all(truth["I"] < method["errors"]["rmse"]["I"] for method in shown["methods"][:-1])
    newcomer = shown["newcomer"]
    assert len(newcomer["entries"]) == len(demo.NEWCOMER_STARS)
    assert len(newcomer["best"]) == demo.N_BEST
    assert not newcomer["best"].keys() & newcomer["entries"].keys()


@pytest.mark.usefixtures("small")
def test_words(run: Any) -> None:
    code, out, err = run("demo")
    assert (code, err) == (0, "")
    for part in ("no person or film is real", "The four areas", "RMSE", "MAE", "A new row", "deepmf fit ratings.csv"):
        assert part in out


@pytest.mark.slow
def test_dmf_beats_the_means_in_every_area(run: Any) -> None:
    means, dmf, discrete, truth = json.loads(run("demo", "--json").out)["methods"]
    for area in ("I", "II", "III", "IV"):
        assert truth["errors"]["rmse"][area] < dmf["errors"]["rmse"][area] < 0.95 * means["errors"]["rmse"][area]
        assert truth["errors"]["mae"][area] < discrete["errors"]["mae"][area] < 0.95 * means["errors"]["mae"][area]
