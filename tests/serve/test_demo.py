"""The model of the demo."""

from pathlib import Path

import pytest

from deepmf import load
from deepmf.data.synthetic import generate
from deepmf.serve.demo import write_demo_model


@pytest.mark.slow
def test_the_demo_knows_all_films_that_were_rated(tmp_path: Path) -> None:
    sizes = {"n_rows": 60, "n_columns": 40, "density": 0.3}
    small = {"hidden_sizes": (8,), "latent_size": 4, "epochs": 1, "views": 2}
    write_demo_model(tmp_path / "m", seed=3, **sizes, **small)
    assert load(tmp_path / "m").entries_.n_entries == generate(**sizes, noise=0.7, seed=3).matrix.n_entries
