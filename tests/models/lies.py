"""Files that lie: every model as a tiny file, what can be changed in it, and every question to what
is still loaded."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.data import split_areas
from deepmf.errors import CannotExtend, TrainingDiverged
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.registry import MODELS, model_class
from deepmf.storage.model_file import StoredFile, read_file
from deepmf.testing import additive, keep_known
from deepmf.training.history import Callback, EpochRecord, History

NAMES = tuple(MODELS)
NETWORK: dict[str, Any] = {"epochs": 2, "device": "cpu"}
BRANCHES = NETWORK | {
    "hidden_sizes": (5,),
    "latent_size": 3,
    "dropout": 0.0,
    "block_rows": 8,
    "block_columns": 8,
}
SMALL: dict[str, dict[str, Any]] = {
    "dmf": BRANCHES,
    "dmf-d": BRANCHES,
    "dmf-o": BRANCHES | {"views": 3, "landmarks": 4, "linear_iterations": 4},
    "deep-u-autorec": NETWORK | {"hidden_sizes": (5, 3)},
    "means": {},
} | {
    name: NETWORK | {"hidden_size": 4}
    for name in ("i-autorec", "u-autorec", "i-cf-nade", "u-cf-nade")
}


def small_model(name: str, **settings: Any) -> Model:
    """A model by its name that is learned at once."""
    return model_class(name)(**SMALL.get(name, {"epochs": 2, "latent_size": 2}) | settings)


def fitted(name: str) -> Model:
    """A tiny model, extended where it can be: its file has everything that a file of it can
    have."""
    split = split_areas(additive(12, 10), seed=0)
    trained, columns, _ = (part[:2] for part in split.train.entries())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        features: dict[str, Any] = {}
        if model_class(name).takes_features:
            features = {**described(split.train)}
        model = small_model(name).fit(split.train, split.validation, **features)
        if model.predicts != ("I",):
            model = model.extend(keep_known(split.extension, split.train, type(model)))
        return model.forget(entries=(trained, columns))


def described(train: ObservedMatrix) -> dict[str, Features]:
    """Features of every kind, of rows and of columns; some labels are not in the matrix, and one
    has no features."""
    places = range(train.shape[0] + 1)
    kinds: dict[str, Any] = {
        "number": [None if k == 3 else k / 2 for k in places],
        "category": [str(k % 3) for k in places],
        "list": ["|".join("abc"[: 1 + k % 3]) for k in places],
        "date": [f"20{10 + k}-0{1 + k % 9}-11" for k in places],
    }
    rows = Features.from_columns([*train.row_labels[1:], "row x", "row y"], kinds)
    plots = [(float(k % 2), float(k % 3)) for k in range(train.shape[1])]
    columns = Features.from_columns(
        train.column_labels, {"number": np.arange(train.shape[1]), "plot": plots}
    )
    return {"row_features": rows, "column_features": columns}


def stored(name: str, folder: Path) -> StoredFile:
    """What the file of such a model holds."""
    fitted(name).save(folder / name)
    return read_file(folder / name, kind="model")


def interrupted(
    name: str, folder: Path, **settings: Any
) -> tuple[StoredFile, Callable[[Path], Model]]:
    """The checkpoint of a training that was interrupted, and the fit that continues it from a
    file."""
    split = split_areas(additive(12, 10), seed=0)

    def fit(path: Path, *callbacks: Callback) -> Model:
        model = small_model(name, **{"epochs": 4, "validate_every": 1} | settings)
        return model.fit(
            split.train, split.validation, checkpoint=path, checkpoint_every=1, callbacks=callbacks
        )

    def interrupt(record: EpochRecord, _: History) -> None:
        if record.epoch == 2:
            raise KeyboardInterrupt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(folder / "run.checkpoint", interrupt)
    return read_file(folder / "run.checkpoint", kind="checkpoint"), fit


JUNK: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        3,
        2**31,
        2**40,
        2**63,
        -(2**70),
        10**30,
        10**400,
        0.5,
        -0.5,
        1e308,
        -1e308,
        1e-320,
    ),
    *(
        "",
        "x",
        "cuda",
        "\ud800",
        [],
        {},
        [1, 2],
        [2, 1],
        [None],
        [[]],
        {"a": 1},
        {"self": 1},
        [1e308, -1e308],
        [2**40] * 3,
    ),
    [1] * 1000,
    {"levels": [1, 2]},
    {"low": 1, "high": 5},
)


def deep(depth: int) -> list[Any]:
    """Lists that lie in each other."""
    item: list[Any] = []
    for _ in range(depth):
        item = [item]
    return item


def changed_content(content: Any, dice: np.random.Generator) -> Any:
    """Return JSON content with one thing changed somewhere."""
    at = int(dice.integers(len(content) + 1)) if isinstance(content, dict | list) else 0
    if isinstance(content, dict) and at < len(content):
        name = list(content)[at]
        match dice.integers(8):
            case 0:
                return {key: value for key, value in content.items() if key != name}
            case 1:
                return content | {"unheard of": JUNK[dice.integers(len(JUNK))]}
            case _:
                return content | {name: changed_content(content[name], dice)}
    if isinstance(content, list) and at < len(content):
        match dice.integers(5):
            case 0:
                return content[:at] + content[at + 1 :]
            case 1:
                return content[: at + 1] + content[at:]
            case _:
                return [*content[:at], changed_content(content[at], dice), *content[at + 1 :]]
    number = isinstance(content, int | float) and not isinstance(content, bool)
    match dice.integers(4):
        case 0 if number:
            return content * [-1, 1000, 10**12, 0.1][dice.integers(4)]
        case 1:
            return deep(int(dice.integers(1, 40)))
        case _:
            return JUNK[dice.integers(len(JUNK))]


def changed_tensor(tensor: npt.NDArray[Any], dice: np.random.Generator) -> npt.NDArray[Any]:
    """Return a tensor with something changed: its shape, its type, or some of its elements."""
    changes: list[Callable[[], npt.NDArray[Any]]] = [
        lambda: tensor[:0],
        lambda: tensor[: max(len(tensor) - 1, 0)],
        lambda: np.concatenate([tensor, tensor[:1]]),
        lambda: tensor.T.copy(),
        lambda: tensor.reshape(-1),
        lambda: tensor.reshape(*tensor.shape, 1),
        lambda: np.zeros((0, 3), dtype=tensor.dtype),
        lambda: np.array(7, dtype=tensor.dtype),
        lambda: tensor.astype(
            dice.choice(
                ["float16", "float32", "float64", "int8", "int32", "int64", "uint64", "bool"]
            )
        ),
        lambda: dice.permutation(tensor),
        lambda: tensor[::-1].copy(),
        lambda: flipped(tensor, dice),
        *(
            lambda value=value: with_one(tensor, value, dice)
            for value in (np.nan, np.inf, -1, 0, 1e30, -1e15, 2**31 - 1)
        ),
        *(
            lambda factor=factor: (tensor * np.float64(factor)).astype(tensor.dtype)
            for factor in (-1, 0, 1e6, 1e18, 1e36, np.nan)
        ),
    ]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (
            changes[dice.integers(len(changes))]()
            if tensor.ndim
            else np.asarray(tensor + np.float64(dice.integers(-9, 9))).astype(tensor.dtype)
        )


def flipped(tensor: npt.NDArray[Any], dice: np.random.Generator) -> npt.NDArray[Any]:
    """Return a tensor with some bits of its memory flipped; a boolean one stays boolean."""
    found = tensor.copy()
    view = found.reshape(-1).view(np.uint8)
    for _ in range(int(dice.integers(1, 4)) if view.size else 0):
        view[dice.integers(view.size)] ^= np.uint8(
            1 if tensor.dtype == bool else 1 << dice.integers(8)
        )
    return found


def with_one(tensor: npt.NDArray[Any], value: float, dice: np.random.Generator) -> npt.NDArray[Any]:
    """Return a tensor with one element of another value."""
    found = tensor.copy()
    if found.size:
        found.reshape(-1)[dice.integers(found.size)] = np.array(value).astype(tensor.dtype)
    return found


def changed(file: StoredFile, dice: np.random.Generator) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
    """Return the content and the tensors of a file, of which one to three things are changed."""
    content, tensors = file.content, dict(file.tensors)
    for _ in range(int(dice.choice([1, 1, 1, 2, 3]))):
        names = sorted(tensors)
        name = names[dice.integers(len(names))]
        match dice.integers(10):
            case 0 | 1 | 2 | 3:
                content = changed_content(content, dice)
                content = content if isinstance(content, dict) else {"class": content}
            case 4:
                del tensors[name]
            case 5:
                tensors[names[dice.integers(len(names))]] = tensors[name]
            case 6:
                tensors[f"{name}.more"] = tensors[name]
            case _:
                tensors[name] = changed_tensor(tensors[name], dice)
    return content, tensors


def questions(model: Model) -> Iterator[Callable[[], Any]]:
    """Yield everything that a model can be asked, of some of its rows and columns."""
    rows, columns = (
        np.repeat(model.row_labels_[[0, -1]], 2),
        np.tile(model.column_labels_[[0, -1]], 2),
    )
    yield lambda: model.predict(rows, columns)
    yield lambda: model.scores(rows, columns)
    yield lambda: model.areas(rows, columns)
    yield lambda: model.row_counts(rows)
    yield lambda: model.recommend(rows[0], n=3).values
    yield lambda: model.recommend(rows, n=2, include_observed=True).values
    yield lambda: model.complete()
    if model.scale_.levels is not None:
        yield lambda: model.predict_levels(rows, columns)
        yield lambda: model.predict_levels(rows, columns, metric="mae")
        yield lambda: model.predict_levels(rows, columns, metric="accuracy")
    if model.gives_distribution:
        yield lambda: model.predict_distribution(rows, columns)
        yield lambda: np.asarray(model.predict_interval(rows, columns))
    if type(model).__name__ != "Means":
        yield lambda: model.similar_rows(rows[0]).values
        yield lambda: model.similar_columns(columns[0]).values


def ask_everything(model: Model, folder: Path) -> None:
    """Ask a model everything, extend it, save it; it answers with numbers, or refuses in a sentence
    of ours."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for ask in questions(model):
            answer = ask()
            assert answer.dtype.kind not in "fc" or np.isfinite(answer).all() or answer.ndim == 2
        assert np.isfinite(model.complete()).all()
        model.save(folder / "again")
        try:
            more = model.extend(one_more(model))
            if "II" in model.predicts:
                folded = model.fold_in(model.column_labels_[:3], [model.scale_.high] * 3)
                assert np.isfinite(folded.predict(model.column_labels_)).all()
        except (CannotExtend, TrainingDiverged):
            return
        for ask in questions(more):
            ask()


def one_more(model: Model) -> ObservedMatrix:
    """Return an entry for each trained row (or column, where it reads these) in a new column (or
    row)."""
    rows, columns = model.row_labels_, model.column_labels_
    if "II" in model.predicts or "III" not in model.predicts:
        columns = columns[:3]
        rows = np.repeat(_another(rows), columns.size)
    else:
        rows = rows[:3]
        columns = np.repeat(_another(columns), rows.size)
    return ObservedMatrix.from_entries(
        rows, columns, np.full(rows.size, model.scale_.high), model.scale_
    )


def _another(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a label that is not among some, of their kind."""
    if labels.dtype.kind == "i":
        return np.setdiff1d(np.arange(labels.size + 1), labels)[:1]
    assert isinstance(labels[0], str), "labels are never changed to another kind but numbers"
    return np.array(["nobody's name"], dtype=object)
