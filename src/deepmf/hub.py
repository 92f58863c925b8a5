"""Models on the Hugging Face Hub: upload a model with a generated card, and load one back (extra
`hub`).

A model file holds the training entries and all ids: upload only models whose data you may publish.
"""

from __future__ import annotations

from importlib.metadata import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deepmf.errors import import_optional
from deepmf.models.base import Model
from deepmf.models.loading import load
from deepmf.training.history import describe_errors, describe_training

__all__ = ["from_pretrained", "make_card", "push_to_hub"]

MODEL_FILE = "model.safetensors"

_CARD = """---
library_name: deepmf
tags:
- matrix-completion
- recommender-systems
- deepmf
---

# {name}

A {model} of [deepmf]({address}): it predicts the missing entries of a matrix, also for rows and
columns that it has never seen.

| | |
| --- | --- |
{facts}

```python
from deepmf.hub import from_pretrained

model = from_pretrained("{repository}")
model.predict([{row!r}], [{column!r}])
model.recommend({row!r}, n=10)
model.fold_in([{column!r}], [{value:g}]).recommend(n=10)  # a new row, without training
```

The file `{file}` holds the learned parameters, the training entries and all ids. Nothing in it is pickled.
"""


def push_to_hub(
    model: Model,
    repository: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    message: str = "Upload a deepmf model",
    api: Any = None,
) -> str:
    """Upload a fitted model and a generated model card to the Hugging Face Hub; return the address.

    The model file holds the training entries and all ids, which a public repository publishes.

    Parameters
    ----------
    model : a fitted model.
    repository : the repository, such as "ann/films"; it is created if it does not exist.
    private : whether a new repository is private; default: as the account decides.
    token : an access token; default: that of `hf auth login`.
    message : the commit message.
    api : a `huggingface_hub.HfApi`, if you have one of your own.
    """
    hub = api or _import_hub().HfApi(token=token)
    with TemporaryDirectory() as folder:
        model.save(Path(folder, MODEL_FILE))
        Path(folder, "README.md").write_text(make_card(model, repository), encoding="utf-8")
        hub.create_repo(repository, private=private, exist_ok=True)
        found = hub.upload_folder(repo_id=repository, folder_path=folder, commit_message=message)
    return str(found)


def from_pretrained(
    repository: str | Path, *, revision: str | None = None, token: str | None = None
) -> Model:
    """Load a model from the Hugging Face Hub, or from a folder that `push_to_hub` would upload.

    Parameters
    ----------
    repository : the repository, such as "ann/films", or a folder with the file model.safetensors.
    revision : a branch, tag or commit; default: the newest.
    token : an access token, for a private repository.
    """
    if Path(repository).is_dir():
        return load(Path(repository) / MODEL_FILE)
    return load(
        _import_hub().hf_hub_download(str(repository), MODEL_FILE, revision=revision, token=token)
    )


def make_card(model: Model, repository: str) -> str:
    """Return the model card: what the model was fitted to, its errors and settings, and how to use
    it.

    >>> from deepmf import Means, ObservedMatrix
    >>> ratings = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 1, 2])
    >>> card = make_card(Means(seed=0).fit(ratings), "ann/films")
    >>> "# films" in card, "3 entries" in card, 'from_pretrained("ann/films")' in card
    (True, True, True)
    """
    entries, history = model.entries_, model.history_
    facts = {
        "class": f"`{type(model).__name__}`",
        "matrix": f"{len(entries.rows):,} rows x {len(entries.columns):,} columns, {entries.n_entries:,} entries",
        "scale": str(entries.scale),
        "areas": ", ".join(model.predicts),
        "settings": ", ".join(
            f"{name}={value!r}" for name, value in model.settings.to_dict().items()
        ),
        "training": describe_training(history) if len(history) else "",
        "errors": describe_errors(history) if history.best_error is not None else "",
    }
    addresses = (each.partition(", ") for each in metadata("deepmf").get_all("Project-URL", []))
    return _CARD.format(
        name=repository.rpartition("/")[2],
        repository=repository,
        model=type(model).__name__,
        facts="\n".join(f"| {name} | {fact} |" for name, fact in facts.items() if fact),
        row=entries.rows[:1].tolist()[0],
        column=entries.columns[:1].tolist()[0],
        value=float(entries.train.values[0]),
        file=MODEL_FILE,
        address=next(address for name, _, address in addresses if name == "Source"),
    )


def _import_hub() -> Any:
    return import_optional(
        "huggingface_hub", what="the Hub needs huggingface_hub", install="'deepmf[hub]'"
    )
