"""A model for a demonstration: generated films, fitted on the spot in seconds."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from deepmf.data.synthetic.generator import generate
from deepmf.errors import DeepMFWarning
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF

_RATINGS: dict[str, Any] = {"n_rows": 600, "n_columns": 300, "density": 0.12, "noise": 0.7}
_SETTINGS: dict[str, Any] = {
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


def write_demo_model(path: Path, *, seed: int) -> None:
    """Fit a model to generated films, and write its file."""
    ratings = generate(**_RATINGS, seed=seed).matrix
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a network gains nothing from more
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeepMFWarning)
            model = OrdinalDMF(**_SETTINGS, seed=seed, device="cpu").fit(ratings, progress=False)
    finally:
        torch.set_num_threads(n_threads)
    model.save(path)
