"""Presets: settings of a model for a purpose, by name."""

from __future__ import annotations

from typing import Any

from deepmf.errors import BadSetting, nearest_name

# model: preset: settings
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "dmf-o": {
        # A million ratings in well under a minute on two cores: few and large steps of a narrow network, of which the
        # refinement makes the most. Chosen on validation entries (docs/log.md).
        "small": {
            "hidden_sizes": (128,),
            "latent_size": 32,
            "dropout": 0.3,
            "mask_rate": 0.5,
            "cold_row_rate": 0.0,
            "views": 8,
            "column_penalty": 10.0,
            "landmarks": 64,
            "epochs": 20,
            "validate_every": 5,
            "learning_rate": 1e-2,
            "block_rows": 600,
            "block_columns": 400,
        },
    },
}


def preset(model: str, name: str) -> dict[str, Any]:
    """Return the settings of a preset; a name that does not exist is an error that says the nearest.

    >>> preset("dmf-o", "small")["epochs"]
    20
    """
    known = PRESETS.get(model, {})
    if name not in known:
        has = nearest_name(name, known) if known else f"only {', '.join(PRESETS)} has any"
        raise BadSetting(f"{model!r} has no preset {name!r}; {has}")
    return dict(known[name])
