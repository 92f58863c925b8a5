"""The model of `deepmf serve --demo`, fitted to generated ratings of films."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from deepmf.data.synthetic import generate
from deepmf.errors import DeepMFWarning
from deepmf.matrix.frames import TableForm
from deepmf.models.ordinal.model import OrdinalDMF

# A small network that fits in seconds on one core.
SETTINGS: dict[str, Any] = {
    "hidden_sizes": (64,),
    "latent_size": 16,
    "dropout": 0.2,
    "mask_rate": 0.5,
    "views": 8,
    "epochs": 40,
    "learning_rate": 1e-2,
    "block_rows": 150,
    "block_columns": 150,
    "validate_every": 10,
}


def write_demo_model(
    path: Path, *, seed: int, n_rows: int = 600, n_columns: int = 300, density: float = 0.12, **settings: Any
) -> None:
    """Fit a model to generated ratings and write its file.

    Parameters
    ----------
    settings
        Settings of `OrdinalDMF` that replace those of the demo.
    """
    ratings = generate(n_rows, n_columns, density=density, noise=0.7, seed=seed).matrix
    ratings = ratings.with_form(TableForm("person", "film", "stars"))
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a network this small is no faster with more
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeepMFWarning)
            model = OrdinalDMF(**SETTINGS | settings, seed=seed, device="cpu").fit(ratings, progress=False)
    finally:
        torch.set_num_threads(n_threads)
    model.save(path)
