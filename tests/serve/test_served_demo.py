"""The model of a demonstration."""

from pathlib import Path

import pytest

from deepmf.data.synthetic.generator import generate
from deepmf.models.load import load
from deepmf.serve import served_demo
from deepmf.serve.served_demo import write_demo_model


def test_it_knows_all_films_that_were_rated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ratings = {"n_rows": 60, "n_columns": 40, "density": 0.3}
    monkeypatch.setattr(served_demo, "_RATINGS", ratings)
    monkeypatch.setattr(served_demo, "_SETTINGS", {"hidden_sizes": (8,), "latent_size": 4, "epochs": 1, "views": 2})
    write_demo_model(tmp_path / "m", seed=3)
    assert load(tmp_path / "m").entries_.n_entries == generate(**ratings, seed=3).matrix.n_entries
