"""The Hugging Face Hub: upload a model with a card, and load it back (`pip install huggingface_hub`).

A model file holds the training entries and all ids: upload only what you may publish, or make the
repository private. Usage: python model_hub.py ann/films
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deepmf import ALS, load
from deepmf.datasets import generate
from deepmf.models import Model

FILE = "model.safetensors"

CARD = """---
library_name: deepmf
tags: [matrix-completion, recommender-systems]
---
# {repository}

{model} of deepmf: {n_rows:,} rows x {n_columns:,} columns, {n_entries:,} entries, values {scale}.

    from deepmf import load
    from huggingface_hub import hf_hub_download

    model = load(hf_hub_download("{repository}", "{file}"))
    model.recommend({row!r}, n=10)

The file holds the learned parameters, the training entries and all ids. Nothing in it is pickled.
"""


def push(model: Model, repository: str, hub: Any) -> None:
    """Upload a fitted model and its card; `hub` is a `huggingface_hub.HfApi`."""
    entries = model.entries_
    card = CARD.format(
        repository=repository,
        model=type(model).__name__,
        n_rows=len(entries.rows),
        n_columns=len(entries.columns),
        n_entries=entries.n_entries,
        scale=entries.scale,
        row=model.row_labels_.tolist()[0],
        file=FILE,
    )
    with TemporaryDirectory() as folder:
        model.save(Path(folder, FILE))
        Path(folder, "README.md").write_text(card, encoding="utf-8")
        hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(repo_id=repository, folder_path=folder)


def pull(repository: str, hub: Any) -> Model:
    """Load a model from the Hub."""
    return load(hub.hf_hub_download(repository, FILE))


def main(repository: str, hub: Any) -> None:
    """Upload a model and load it back."""
    model = ALS(seed=0).fit(generate(200, 80, density=0.2, seed=0).matrix)
    push(model, repository, hub)
    print(pull(repository, hub))


if __name__ == "__main__":
    from huggingface_hub import HfApi

    main(sys.argv[1], HfApi())
