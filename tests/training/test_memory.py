"""The memory of a fit: counted from shapes, and refused before anything is allocated."""

import re

import pytest
import scipy.sparse
import torch

from deepmf.datasets import generate
from deepmf.errors import NotEnoughMemory, UserError
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.dmf import DMF
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.paper.autorec import IAutoRec
from deepmf.nn.ranks import Ranks
from deepmf.training import memory
from deepmf.training.memory import estimate_fit_bytes
from deepmf.training.runtime import Runtime
from deepmf.training.settings import TrainingSettings

MATRIX = generate(60, 40, density=0.1, seed=0).matrix
DENSE = generate(60, 40, density=0.5, seed=0).matrix


def test_bytes_are_those_of_shapes() -> None:
    with torch.device("meta"):
        network = torch.nn.Linear(1_000_000, 1_000_000, bias=False)
    settings, runtime = TrainingSettings(), Runtime("cpu")
    found = estimate_fit_bytes(network, MATRIX, settings, runtime, latent_width=10, n_read=7)
    assert found == (20 * 10**12, 28 * MATRIX.n_entries, 100 * 10 * 20, 7 * 60)
    assert found.total == sum(found)
    averaged = estimate_fit_bytes(
        network, DENSE, TrainingSettings(averaging=0.9), runtime, latent_width=0, n_read=7
    )
    assert averaged == (24 * 10**12, 60 * 40 * 12, 0, 0)


def test_a_step_reads_the_entries_of_its_rows_and_columns() -> None:
    few, many = (
        OrdinalDMF(hidden_sizes=(4,), block_rows=n, block_columns=4, device="cpu")
        for n in (15, 100)
    )
    for model, share in ((few, 0.25 + 0.1), (many, 1 + 0.1), (IAutoRec(device="cpu"), 0)):
        needed = model._estimate_bytes(EntryStore.of(MATRIX))
        assert needed is not None and needed.steps == round(60 * share * MATRIX.n_entries)


def test_ranks_divide_tables_and_steps_and_share_the_memory_of_a_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, runtime = DMF(hidden_sizes=(8,), latent_size=2, device="cpu"), Runtime("cpu")
    network = model._new_network(EntryStore.of(MATRIX))
    alone = estimate_fit_bytes(network, MATRIX, model.settings, runtime, latent_width=2, n_read=8)
    runtime.ranks = Ranks(0, 4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    together = estimate_fit_bytes(
        network, MATRIX, model.settings, runtime, latent_width=2, n_read=8
    )
    tables = (60 + 40) * 8 * 20  # bytes
    assert together.weights == 2 * (alone.weights - tables + tables // 4)
    assert together.entries == 2 * alone.entries and together.steps == 2 * alone.steps // 4
    assert (
        estimate_fit_bytes(network, DENSE, model.settings, runtime, latent_width=2).entries
        == 2 * 60 * 40 * 12
    )  # whole


@pytest.mark.parametrize(
    ("model", "settings", "named"),
    [
        (OrdinalDMF, {"hidden_sizes": (10**6,)}, 'hidden_sizes or latent_size, effort="quick"'),
        (DMF, {"hidden_sizes": (10**6, 10**6)}, "hidden_sizes or latent_size"),
        (IAutoRec, {"hidden_size": 10**6}, "hidden_size"),
    ],
)
def test_what_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, model: type[Model], settings: dict[str, object], named: str
) -> None:
    monkeypatch.setattr(memory, "count_free_bytes", lambda _: 1 << 30)
    new = model(**settings, device="cpu")
    with pytest.raises(NotEnoughMemory) as caught:
        new.fit(MATRIX)
    told = str(caught.value)
    assert isinstance(caught.value, UserError)
    assert re.match(rf"fitting {model.__name__} to \d+ entries in 60 rows x 40 columns", told)
    assert re.search("weights, .*1.0 GiB", told)
    assert re.search(rf"smaller {named} .*\(means\)", told)
    assert not new.is_fitted


def test_factors_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = scipy.sparse.csr_array(([1.0, 5.0], ([0, 7], [0, 9])), shape=(10**6, 10**6))
    matrix = ObservedMatrix.from_sparse(entries)
    monkeypatch.setattr(memory, "count_free_bytes", lambda _: 1 << 30)
    with pytest.raises(NotEnoughMemory) as caught:
        ALS(latent_size=200).fit(matrix)
    assert re.match(
        r"fitting ALS to 2 entries .* 6.0 GiB .*latents, .*1.0 GiB .*latent_size .*\(means\)",
        str(caught.value),
    )


def test_where_the_system_does_not_tell_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "count_free_bytes", lambda _: None)
    assert DMF(hidden_sizes=(4,), latent_size=2, epochs=1, device="cpu").fit(MATRIX).is_fitted
    assert ALS(epochs=1).fit(MATRIX).is_fitted
