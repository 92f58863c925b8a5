"""Loading: files whose checksum is right and whose content is not are refused in a sentence, or
answer."""

import copy
import os
import pickle
import time
import warnings
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st
from tests.models.lies import (
    NAMES,
    ask_everything,
    changed,
    fitted,
    interrupted,
    small_model,
    stored,
)

from deepmf.errors import BadModelFile, TrainingDiverged, UserError
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.loading import load
from deepmf.models.registry import find_class
from deepmf.storage.model_file import StoredFile, write_file
from deepmf.training.history import History

A_CLASS = 12  # how many files of each class; test_fuzz.py and `make fuzz` open more
A_TRAINING = 6  # how many checkpoints

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of files need not reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def file(name: str, tmp_path_factory: pytest.TempPathFactory) -> StoredFile:
    return stored(name, tmp_path_factory.mktemp("models"))


def refused(
    file: StoredFile,
    content: dict[str, Any] | None = None,
    tensors: dict[str, npt.NDArray[Any]] | None = None,
    *,
    message: str = "stored|tensor",
) -> None:
    """Check that a file with some other content, or with some other tensors, is refused."""
    model = find_class(file.content["class"])
    assert model is not None
    with pytest.raises(BadModelFile, match=message):
        model.from_stored(file.content | (content or {}), file.tensors | (tensors or {}))


def test_what_is_loaded_answers_and_everything_else_is_refused(
    name: str, file: StoredFile, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    write_file(path, kind="model", content=file.content, tensors=file.tensors)
    ask_everything(load(path), tmp_path)
    for number in range(A_CLASS):
        content, tensors = changed(file, np.random.default_rng([NAMES.index(name), number]))
        write_file(path, kind="model", content=content, tensors=tensors)
        try:
            model = load(path)
        except BadModelFile as error:
            assert str(path) in str(error) and "\n" not in str(error)
        else:
            ask_everything(model, tmp_path)


N_EXTREME = 24


def some_of(*extremes: float) -> Any:
    """Numbers, most of which are usual."""
    return st.lists(
        st.sampled_from([*(1.0, 2.0, 3.0) * 4, *extremes]), min_size=N_EXTREME, max_size=N_EXTREME
    )


@settings(max_examples=8)
@given(
    values=some_of(0.0, -1.0, 1e-320, 1e-30, 1e6, 1e30, -1e39, 1e150, 1e300),
    weights=st.none() | some_of(1e-6, 1e-3, 1e6, 1e11),
    times=st.none() | some_of(-62135596800, -1e9, 0.0, 1.7e9, 253402300799),
)
def test_what_is_saved_opens_and_all_else_is_refused_however_extreme_the_entries_are(
    name: str, values: Any, weights: Any, times: Any
) -> None:
    rows, columns = np.divmod(np.arange(N_EXTREME), 5)
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = Path(folder, "model")
        try:
            matrix = ObservedMatrix.from_entries(
                rows, columns, values, weights=weights, times=times
            )
            model = small_model(name).fit(matrix)
            model.save(path)
        except UserError:
            assert not path.exists()
        else:
            np.testing.assert_array_equal(load(path).complete(), model.complete())


def test_a_model_with_a_number_that_would_not_open_is_not_saved(tmp_path: Path) -> None:
    model = fitted("als")
    model.predictor_.rows.base[0, 0] = np.inf
    with pytest.raises(BadModelFile, match="saved"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_learned_numbers_that_are_not_finite(file: StoredFile) -> None:
    for number, (key, tensor) in zip(
        cycle((np.nan, np.inf, -np.inf)), file.tensors.items(), strict=False
    ):
        if (
            tensor.dtype.kind == "f"
            and tensor.size
            and not key.startswith(("train.", "extension."))
        ):
            wrong = tensor.copy()
            wrong.reshape(-1)[-1] = number
            refused(file, {}, {key: wrong}, message=key.removeprefix("sampler."))


def test_what_was_chosen_are_settings(file: StoredFile) -> None:
    refused(file, {"chosen": ["sizes"]}, message="choice")


def test_every_tensor_is_needed_and_of_its_shape_and_type(file: StoredFile) -> None:
    for number, (key, tensor) in enumerate(file.tensors.items()):
        if key.endswith(("entries.columns", "entries.values", ".text")) and not tensor.size:
            continue
        rest = {name: each for name, each in file.tensors.items() if name != key}
        refused(file._replace(tensors=rest))
        other = np.float32 if tensor.dtype == np.float16 else np.float16
        wrongs: list[npt.NDArray[Any]] = [
            tensor[..., None],
            tensor.astype(np.complex64).real.astype(other),
        ]
        wrongs += [np.concatenate([tensor, tensor[:1]])] if tensor.ndim and len(tensor) else []
        # Weights of a network are all read by one function: one mistake for each of them.
        for wrong in [wrongs[number % len(wrongs)]] if key.startswith("network.") else wrongs:
            if key.endswith(".extra") and wrong.shape != tensor.shape and wrong.ndim == tensor.ndim:
                continue  # one more latent that nothing points to
            refused(file, {}, {key: wrong})


def test_sizes_that_would_fill_the_memory_are_refused_at_once(file: StoredFile) -> None:
    if not any(key.startswith("network.") for key in file.tensors):
        pytest.skip("a rank is cut to the shape of the matrix")
    start, sizes = time.process_time(), "hidden_sizes hidden_size latent_size views"
    for size in (2**31 - 1, 10**9, 10**30, [10**9] * 50, [1] * 10**5):
        for name in file.content["settings"].keys() & sizes.split():
            refused(file, {"settings": file.content["settings"] | {name: size}})
    assert time.process_time() - start < 5


def test_numbers_of_settings_have_an_end(file: StoredFile) -> None:
    settings = file.content["settings"]
    for name, value in settings.items():
        if type(value) in (int, float):
            refused(file, {"settings": settings | {name: 10**400}}, message=name)


def test_an_extension_that_belongs_to_another_training(file: StoredFile) -> None:
    if "extension" not in file.content:
        train = {name.replace("train.", "extension."): each for name, each in file.tensors.items()}
        refused(file, {"extension": file.content["train"]}, train, message="extended")
        return
    other = {"extension": file.content["extension"] | {"scale": {"levels": [1, 2, 3, 4, 5, 6]}}}
    refused(file, other, message="1 to 6")
    text = {"extension.rows.text": file.tensors["extension.rows.text"][::-1].copy()}
    refused(file, {}, text, message="extension")
    for name, each in file.tensors.items():
        if name.endswith(".positions") and each.size:
            refused(file, {}, {name: each - 1 - each[0]}, message="positions|missing")


def test_an_extension_by_what_was_trained_on(tmp_path: Path) -> None:
    file = stored("means", tmp_path)
    parts = ("entries.starts", "entries.columns", "entries.values", "rows.text", "rows.starts")
    parts += ("columns.text", "columns.starts")
    train = {f"extension.{part}": file.tensors[f"train.{part}"] for part in parts}
    refused(file, {"extension": file.content["train"]}, train, message="training")


def test_a_file_without_training_entries(file: StoredFile) -> None:
    empty = {
        f"train.entries.{name}": file.tensors[f"train.entries.{name}"][:0]
        for name in ("columns", "values")
    }
    empty["train.entries.starts"] = 0 * file.tensors["train.entries.starts"]
    refused(file, {}, empty, message="entries")


EMPTY = History().to_dict()


HISTORIES: list[Any] = [
    None,
    EMPTY | {"records": [{}]},
    EMPTY | {"best_epoch": 1},
    EMPTY | {"best_error": -1.0},
    EMPTY | {"stopped": "epoch"},
    EMPTY | {"threads": 0},
    EMPTY | {"stages": {"refined": None}},
]


def test_a_history_that_never_was(tmp_path: Path) -> None:
    file = stored("als", tmp_path)  # all classes read it alike
    for history in HISTORIES:
        refused(file, {"history": history}, message="history|record|threads")


RESUMED = [(name, {}) for name in NAMES if name != "means"]
RESUMED += [("dmf", {"averaging": 0.5})]


@pytest.mark.parametrize("name, settings", RESUMED, ids=str)
def test_checkpoints_that_lie(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    file, fit = interrupted(name, tmp_path, **settings)
    path = tmp_path / "changed.checkpoint"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for number in range(A_TRAINING):
            content, tensors = changed(file, np.random.default_rng([NAMES.index(name), number, 1]))
            write_file(path, kind="checkpoint", content=content, tensors=tensors)
            try:
                model = fit(path)
            except BadModelFile as error:
                assert str(path) in str(error) and "\n" not in str(error)
            except TrainingDiverged:
                pass
            else:
                ask_everything(model, tmp_path)
    for key in ("learned", "good", "state"):
        rest = {
            name: tensor for name, tensor in file.tensors.items() if not name.startswith(f"{key}.")
        }
        if len(rest) < len(file.tensors):
            write_file(path, kind="checkpoint", content=file.content, tensors=rest)
            with pytest.raises(BadModelFile, match=r"\.checkpoint"):
                fit(path)


def test_every_class_can_be_pickled_and_copied(name: str) -> None:
    model = fitted(name)
    whole = model.complete()
    pickled: Model = pickle.loads(pickle.dumps(model))  # noqa: S301
    for again in (pickled, copy.deepcopy(model), copy.copy(model)):
        assert type(again) is type(model) and again.settings == model.settings
        np.testing.assert_array_equal(again.complete(), whole)
    unfitted = type(model)(seed=3)
    assert copy.deepcopy(unfitted).settings == unfitted.settings


def test_a_copy_shares_no_weights() -> None:
    model: Any = fitted("dmf")
    whole = model.complete()
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        for weight in again.network_.parameters():
            weight.data.fill_(7.0)
        again.predictor_.rows.base[:] = 7.0
    np.testing.assert_array_equal(model.complete(), whole)
    assert all((weight.detach() != 7.0).any() for weight in model.network_.parameters())
