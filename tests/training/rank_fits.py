"""Fits that one, two and four processes do alike, for the tests of training on several ranks."""

import resource
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from deepmf.data import split_entries
from deepmf.datasets import generate
from deepmf.errors import DeepMFWarning, NotBetterThanMeans, UserError
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.dmf import DMF
from deepmf.models.dmfd import DMFD
from deepmf.models.network_model import NetworkModel
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.nn.group import find_ranks
from deepmf.nn.inputs import SparseVectors
from deepmf.training.blocks import MatrixBlocks
from deepmf.training.history import EpochRecord, History
from deepmf.training.trainer import Trainer

SMALL = {
    "hidden_sizes": (16, 12),
    "latent_size": 6,
    "dropout": 0.3,
    "epochs": 4,
    "validate_every": 2,
    "device": "cpu",
}
SMALL |= {"presence": None}  # has tests of its own
BLOCKS = {"block_rows": 24, "block_columns": 16}
ORDINAL = SMALL | BLOCKS | {"views": 4, "landmarks": 8, "linear_size": 4, "linear_iterations": 4}
SPARSE = split_entries(
    generate(61, 43, n_entries=300, seed=0).matrix, train=0.8, validation=0.1, test=0.1, seed=0
)
DENSE = split_entries(
    generate(30, 20, n_entries=300, seed=0).matrix, train=0.8, validation=0.1, test=0.1, seed=0
)
# Of four ranks, the last one has no column.
NARROW = split_entries(
    generate(61, 5, n_entries=40, seed=0).matrix, train=0.8, validation=0.1, test=0.1, seed=0
)
TESTED = {each.train.shape: each.test for each in (SPARSE, DENSE, NARROW)}
DESCRIBED: dict[str, Any] = {
    "row_features": Features.from_columns(SPARSE.train.row_labels, {"age": np.arange(61) % 17}),
    "column_features": Features.from_columns(
        SPARSE.train.column_labels, {"genre": ["a|b", "b", "c"] * 14 + ["a"]}
    ),
}
KILLED_IN_EPOCH = 2


def ordinal(**settings: Any) -> OrdinalDMF:
    """OrdinalDMF of a size for tests."""
    return OrdinalDMF(**ORDINAL | settings)


def networks(**settings: Any) -> OrdinalDMF:
    """OrdinalDMF of networks alone: beside a sampler, such short trainings would be left out."""
    return ordinal(linear_size=0, **settings)


def bayesian() -> BayesianMF:
    """BayesianMF of a size for tests."""
    return BayesianMF(latent_size=4, epochs=8, burn_in=2, samples=3, device="cpu", presence=None)


FITS: dict[str, Callable[[Path], Model]] = {
    "ordinal": lambda _: ordinal().fit(SPARSE.train, SPARSE.validation),
    "dense": lambda _: networks(presence="auto").fit(DENSE.train, DENSE.validation),
    "narrow": lambda folder: networks().fit(
        NARROW.train,
        NARROW.validation,
        checkpoint=folder / f"narrow-{find_ranks() is None}",
        checkpoint_every=2,
    ),
    "without validation": lambda _: networks(averaging=0.9).fit(SPARSE.train),
    "networks": lambda _: networks(networks=2, epochs=3).fit(SPARSE.train, SPARSE.validation),
    "features": lambda _: networks().fit(SPARSE.train, SPARSE.validation, **DESCRIBED),
    "dense dmf": lambda _: DMF(**SMALL | BLOCKS).fit(DENSE.train, DENSE.validation),
    "dmfd": lambda _: DMFD(**SMALL | BLOCKS).fit(SPARSE.train, SPARSE.validation),
    "bayesian": lambda _: bayesian().fit(SPARSE.train, SPARSE.validation, **DESCRIBED),
}


# Four processes are slow: of them, a network, one of whose tables a rank has no part, and a chain.
FITS_OF_FOUR = ("ordinal", "narrow", "bayesian")


def learned(model: Model) -> dict[str, Tensor]:
    """What a fit ends with: losses, errors, weights, predictions."""
    records = model.history_.records
    rows, columns, _ = TESTED[model.entries_.train.shape].entries()
    found = {
        "losses": torch.tensor([record.loss for record in records]),
        "errors": torch.tensor([record.validation_error or 0.0 for record in records]),
        "predictions": torch.from_numpy(model.predict(rows, columns)),
    }
    is_sampled = isinstance(model, OrdinalDMF) and "network" not in model.predictor_.members
    if is_sampled or not isinstance(model, NetworkModel):
        return found
    return found | {
        f"network.{name}": tensor for name, tensor in model.network_.state_dict().items()
    }


def refusals() -> dict[str, str]:
    """What each wrong fit says."""
    ranks = find_ranks()
    assert ranks is not None
    few = generate(3, 30, n_entries=60, seed=0).matrix
    mine = generate(30, 20, n_entries=60, seed=int(ranks.index == 1)).matrix
    wrong: dict[str, Callable[[], object]] = {
        "als": lambda: ALS().fit(SPARSE.train),
        "gamma": lambda: DMF(**SMALL, gamma=0.1).fit(SPARSE.train),
        "few": lambda: ordinal().fit(few),
        "entries": lambda: ordinal().fit(mine),
        "clicks": lambda: OrdinalDMF().fit(ObservedMatrix.from_interactions(*mine.entries()[:2])),
        "settings": lambda: ordinal(learning_rate=0.01 if ranks.index else 0.02).fit(SPARSE.train),
    }
    return {name: _refusal(fit) for name, fit in wrong.items()}


def _refusal(fit: Callable[[], object]) -> str:
    try:
        fit()
    except UserError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def stopping_in(epoch: int) -> Callable[[EpochRecord, History], None]:
    """A callback that ends a fit as a fault would."""

    def stop(record: EpochRecord, _: History) -> None:
        if record.epoch == epoch:
            raise ZeroDivisionError

    return stop


def kept_fit(path: Path, *, stopped: bool = False, model: Model | None = None) -> Model | None:
    """A fit with a checkpoint after every epoch, which may be stopped; the next goes on where it
    stopped."""
    callbacks = [stopping_in(KILLED_IN_EPOCH)] if stopped else []
    try:
        return (model or ordinal()).fit(
            SPARSE.train,
            SPARSE.validation,
            checkpoint=path,
            checkpoint_every=1,
            keep_checkpoint=True,
            callbacks=callbacks,
        )
    except ZeroDivisionError:
        return None


def on_a_full_disk(path: Path) -> dict[str, Any]:
    """A fit of which one rank can no longer write after the first state."""
    ranks = find_ranks()
    assert ranks is not None
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    there: list[bool] = []

    def fill(record: EpochRecord, _: History) -> None:
        there.append(path.exists())
        if record.epoch == 1 and ranks.index == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = ordinal().fit(
                SPARSE.train,
                SPARSE.validation,
                checkpoint=path,
                checkpoint_every=1,
                keep_checkpoint=True,
                callbacks=[fill],
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    told = [each for each in caught if issubclass(each.category, DeepMFWarning)]
    said = [str(each.message) for each in told if not issubclass(each.category, NotBetterThanMeans)]
    return {"said": said, "there": there} | learned(model)


def divided_sizes() -> dict[str, int]:
    """How many numbers a rank holds for each table, in weights and in states of training."""
    trainer = ordinal(averaging=0.9)._make_task(EntryStore.of(SPARSE.train), None)
    assert isinstance(trainer, Trainer)
    tensors = {f"learned.{name}": tensor for name, tensor in trainer.get_learned().items()}
    tensors |= {f"state.{name}": tensor for name, tensor in trainer.state().items()}
    return {name: tensors[name].numel() for name in trainer.find_divided()}


def divided_entries() -> dict[str, list[int]]:
    """Which columns of rows' entries, and which rows of columns' entries, this rank reads in
    steps."""
    trainer = ordinal()._make_task(EntryStore.of(SPARSE.train), None)
    assert isinstance(trainer, Trainer) and isinstance(trainer.source, MatrixBlocks)
    vectors = {"rows": trainer.source.rows, "columns": trainer.source.columns}
    found = {
        name: each.indices.tolist()
        for name, each in vectors.items()
        if isinstance(each, SparseVectors)
    }
    return found | {"all": trainer.source.matrix.by_row.columns.tolist()}


def everything(folder: Path) -> None:
    """All fits and refusals on this rank; two ranks leave a checkpoint for others to continue."""
    ranks = find_ranks()
    assert ranks is not None
    names = FITS if ranks.size == 2 else FITS_OF_FOUR
    found: dict[str, Any] = {name: learned(FITS[name](folder)) for name in names}
    found["refusals"] = refusals()
    found["sizes"], found["entries"] = divided_sizes(), divided_entries()
    if ranks.size == 2:
        kept_fit(folder / "killed", stopped=True)
        dist.barrier()
        if ranks.index == 0:
            for name in ("for-one", "for-four"):
                shutil.copy(folder / "killed", folder / name)
        dist.barrier()
        again = kept_fit(folder / "killed")
        assert again is not None
        found["killed"] = learned(again)
        kept_fit(folder / "killed-chain", stopped=True, model=bayesian())
        found["killed chain"], found["whole chain"] = (
            learned(model)
            for model in (
                kept_fit(folder / name, model=bayesian())
                for name in ("killed-chain", "whole-chain")
            )
            if model is not None
        )
        found["full"] = on_a_full_disk(folder / "full")
    else:
        continued = kept_fit(folder / "for-four")
        assert continued is not None
        found["continued"] = learned(continued)
    torch.save(found, folder / f"{ranks.size}-{ranks.index}.pt")
