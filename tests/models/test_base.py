"""A model in two lines, and in a notebook."""

from __future__ import annotations

import mmap
import subprocess
import sys
import warnings
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from tests.models.test_dmf import QUICK

from deepmf.data import Split, split_entries
from deepmf.datasets import generate
from deepmf.errors import BadEntries, BadModelFile, BadSetting, NotBetterThanMeans
from deepmf.matrix.features import Features
from deepmf.matrix.labels import TextLabels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.dmf import DMF
from deepmf.models.loading import load, verify
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.registry import MODELS, model_class
from deepmf.storage import model_file
from deepmf.storage.model_file import map_file, write_file
from deepmf.testing import additive


@pytest.fixture(scope="module")
def split() -> Split:
    return split_entries(generate(60, 40, density=0.5, seed=0).matrix, seed=0)


def test_not_fitted_it_is_as_it_is_made() -> None:
    assert repr(ALS()) == "ALS()"
    assert repr(ALS(latent_size=3, patience=None)) == "ALS(patience=None, latent_size=3)"
    assert eval(repr(ALS(seed=7)), {"ALS": ALS}).settings == ALS(seed=7).settings


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_shown(name: str) -> None:
    assert repr(model_class(name)()) == f"{MODELS[name].class_name}()"


@pytest.mark.slow
def test_fitted_it_says_what_it_knows_and_how_well_it_predicts(split: Split) -> None:
    model = ALS(epochs=3, seed=1).fit(split.train, split.validation)
    history = model.history_
    assert repr(model).splitlines() == [
        f"ALS(60 x 40, {split.train.n_entries} entries, validation RMSE {history.best_error:.3f}; "
        f"means {history.means_error:.3f})",
        f"  scale: {split.train.scale}",
        "  settings: seed=1, epochs=3; 2 chosen (see chosen_)",
    ]
    first, *_, last = repr(Means().fit(split.train)).splitlines()
    assert first == f"Means(60 x 40, {split.train.n_entries} entries)"
    assert last == "  settings: all by default; 2 chosen (see chosen_)"


@pytest.mark.slow
def test_chosen_settings_are_told_apart_from_given_ones(split: Split) -> None:
    model = OrdinalDMF(effort="quick", epochs=1, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotBetterThanMeans)
        model.fit(split.train, split.validation)
    *_, settings = repr(model).splitlines()
    no_settings = {"members", "parts"}
    n_chosen = len(model.chosen_.keys() - no_settings)
    assert no_settings < model.chosen_.keys()
    assert (
        settings
        == f"  settings: epochs=1, device='cpu', effort='quick'; {n_chosen} chosen (see chosen_)"
    )
    assert "landmarks" not in repr(OrdinalDMF(**model.own_settings))


def test_features_are_listed(split: Split) -> None:
    films = {"year": range(40), "genre": ["a", "b"] * 20} | {
        f"tag {k}": ["x", "y"] * 20 for k in range(12)
    }
    model = Means().fit(
        split.train, column_features=Features.from_columns(split.train.column_labels, films)
    )
    last = repr(model).splitlines()[-1]
    assert last.startswith("  column features: year (number), genre (category), tag 0 (category)")
    assert last.endswith("tag 9 (category) and 2 more")
    assert "features" not in repr(Means().fit(split.train))


def test_extended_it_counts_what_it_knows(split: Split) -> None:
    model = Means().fit(split.train)
    column = split.train.column_labels[0]
    more = model.extend(ObservedMatrix.from_entries(["new"], [column], [5.0], split.train.scale))
    assert repr(more).startswith(f"Means(61 x 40, {split.train.n_entries + 1} entries)")
    fewer = more.forget(rows=["new", split.train.row_labels[0]])
    n_gone = split.train.row_counts[0]
    assert repr(fewer).startswith(f"Means(60 x 40, {split.train.n_entries - n_gone} entries)")


TABLE = np.array([[1.0, 2.0], [3.0, np.nan]])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (TABLE, "got ndarray (ObservedMatrix.from_array makes one)"),
        (scipy.sparse.csr_array(TABLE), "got csr_array (ObservedMatrix.from_sparse makes one)"),
        ([("ann", "Alien", 5)], "got list (ObservedMatrix.from_entries makes one)"),
        ("ratings.csv", "got str (read_matrix reads one from a file)"),
        (Path("ratings.csv"), "got PosixPath (read_matrix reads one from a file)"),
    ],
    ids=lambda given: type(given).__module__,
)
def test_what_is_no_matrix_is_told_how_to_become_one(given: Any, told: str) -> None:
    with pytest.raises(BadEntries) as refused:
        Means().fit(given)
    assert str(refused.value).endswith(told)


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_a_frame_whose_columns_would_be_guessed_is_refused(library: Any) -> None:
    with pytest.raises(BadEntries, match="clear"):
        Means().fit(library.DataFrame({"a": [1, 2], "b": [3, 4], "c": [5, 6]}))


def test_latents_are_arrays_in_the_order_of_the_labels() -> None:
    matrix = generate(40, 30, density=0.5, seed=0).matrix
    model = ALS(latent_size=3).fit(matrix)
    assert model.row_latents_.shape == (40, 3) and model.column_latents_.shape == (30, 3)
    row = model.row_labels_.tolist().index(matrix.row_labels[7])
    cosines = model.row_latents_ @ model.row_latents_[row]
    cosines /= np.linalg.norm(model.row_latents_, axis=1) * np.linalg.norm(model.row_latents_[row])
    cosines[row] = -2
    assert (
        model.similar_rows(matrix.row_labels[7], n=1).labels[0]
        == model.row_labels_[np.argmax(cosines)]
    )
    with pytest.raises(ValueError, match="read-only"):
        model.row_latents_[0, 0] = 1.0
    model.predictor_.rows.base[0, 0] += 0.0  # the model's own stay as they are
    with pytest.raises(BadSetting, match="latents"):
        Means().fit(matrix).row_latents_  # noqa: B018


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    DMF(**QUICK | {"epochs": 2, "hidden_sizes": (4,), "latent_size": 3}).fit(additive()).save(path)
    return path


@pytest.mark.slow
def test_loading_draws_no_weights_and_nothing_imports_torchs_compiler(saved: Path) -> None:
    code = (
        "import sys, torch; from deepmf import load, DMF; from deepmf.datasets import generate;"
        "from deepmf.training.trainer import SGD; weight = torch.ones(2, requires_grad=True);"
        "SGD([weight], 0.1).step(lambda: (weight.square().sum().backward(), weight.sum())[1].detach());"
        "DMF(epochs=1, hidden_sizes=(4,), latent_size=2).fit(generate(9, 8, density=0.9, seed=0).matrix);"
        "before = torch.get_rng_state();"
        f"network = load({str(saved)!r}).network_;"
        "assert all(each.device.type == 'cpu' for each in (*network.parameters(), *network.buffers()));"
        "assert all(each.requires_grad for each in network.parameters()) and not network.training;"
        "assert torch.equal(before, torch.get_rng_state());"
        "print('torch._dynamo' in sys.modules, 'sympy' in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "False False"


def test_a_checkpoint_is_no_model(tmp_path: Path) -> None:
    write_file(tmp_path / "c", kind="checkpoint", content={}, tensors={})
    with pytest.raises(BadModelFile, match="checkpoint"):
        load(tmp_path / "c")


def test_labels_that_cannot_be_saved_are_refused_before_anything_is_learned() -> None:
    matrix = ObservedMatrix.from_entries([(1, 2), (3, 4)], ["a", "b"], [1, 2])
    model = Means()
    with pytest.raises(BadSetting, match="tuple"):
        model.fit(matrix)
    assert not model.is_fitted


@pytest.mark.parametrize(
    "labels",
    [
        [date(2020, 1, 1), date(2021, 12, 31)],
        [datetime(2020, 1, 1, 12, 30, 5, 7), datetime(2021, 1, 1)],
        [False, True],
        [b"\x00\xff", b"a"],
        [Decimal("1.10"), Decimal("2E+3")],
        [UUID(int=1), UUID(int=2)],
    ],
    ids=lambda labels: type(labels[0]).__name__,
)
def test_labels_of_other_kinds_train_save_and_load(labels: list[Any], tmp_path: Path) -> None:
    matrix = ObservedMatrix.from_entries(labels * 2, ["a", "a", "b", "b"], [1, 2, 2, 3])
    model = Means().fit(matrix)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert [(type(label), label) for label in again.row_labels_] == [
        (type(label), label) for label in labels
    ]
    np.testing.assert_array_equal(
        again.predict(labels, ["a", "b"]), model.predict(labels, ["a", "b"])
    )
    model.save(tmp_path / "mapped.model")
    for opened in (load(tmp_path / "mapped.model"), verify(tmp_path / "mapped.model")):
        assert [(type(label), label) for label in opened.row_labels_] == [
            (type(label), label) for label in labels
        ]
        np.testing.assert_array_equal(
            opened.predict(labels, ["a", "b"]), model.predict(labels, ["a", "b"])
        )


def test_a_name_or_a_size_makes_a_model_memory_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, paths = Means().fit(additive()), [tmp_path / "m.safetensors", tmp_path / "m.model"]
    for path in paths:
        model.save(path)
    assert [isinstance(load(path).entries_.train.values.base, mmap.mmap) for path in paths] == [
        False,
        True,
    ]
    load(paths[1]).save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == paths[0].read_bytes()
    monkeypatch.setattr(model_file, "LARGEST_READ", 1000)
    model.save(paths[0])
    assert isinstance(load(paths[0]).entries_.train.values.base, mmap.mmap)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with pytest.raises(BadModelFile, match="directory"):
        load(tmp_path)


@pytest.mark.slow
def test_mapping_a_model_reads_positions_and_a_few_predictions(tmp_path: Path) -> None:
    path = tmp_path / "means.model"
    Means().fit(additive()).save(path)
    stored = map_file(path, kind="model")
    # Compiled code would read outside of arrays by wrong positions.
    false = [
        ("latents.rows.base", np.nan, "not finite"),
        ("train.entries.values", 77, "scale"),
        ("train.by_column.rows", 10**6, "positions"),
    ]
    for name, value, refused_for in false:
        tensor = stored.tensors[name].copy()
        tensor[...] = value
        write_file(
            path, kind="model", content=stored.content, tensors=stored.tensors | {name: tensor}
        )
        with pytest.raises(BadModelFile, match=refused_for):
            load(path)
        with pytest.raises(BadModelFile, match="means.model"):
            verify(path)
    for name, tensor in stored.tensors.items():
        changed = (
            tensor[:-1] if tensor.size else np.zeros((1, *tensor.shape[1:]), dtype=tensor.dtype)
        )
        write_file(
            path, kind="model", content=stored.content, tensors=stored.tensors | {name: changed}
        )
        with pytest.raises(BadModelFile, match="means.model"):
            load(path)


@pytest.mark.slow
def test_answers_of_a_mapped_model_decode_the_labels_they_need(tmp_path: Path) -> None:
    drawn = generate(1500, 2000, n_entries=12_000, seed=0).matrix
    matrix = ObservedMatrix.from_entries(*drawn.entries(), drawn.scale)  # whose labels are sorted
    Means().fit(matrix).save(tmp_path / "means.model")
    model = load(tmp_path / "means.model")
    rows, columns = model.entries_.rows, model.entries_.columns
    row, some = rows[3], columns[[5, 7, 900]].tolist()
    model.predict([row], some[:1])
    model.recommend(row, 5, exclude=some)
    guest = model.fold_in(some, [5, 1, 4])
    guest.recommend(5)
    more = model.extend(ObservedMatrix.from_entries(["new"] * 3, some, [5, 1, 4], model.scale_))
    assert more.recommend("new", 5).labels.tolist() == guest.recommend(5).labels.tolist()
    for labels in (rows, columns):
        assert isinstance(labels, TextLabels) and not {"array", "_index"} & vars(labels).keys()
