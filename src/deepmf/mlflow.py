"""Models in MLflow: save, log and load them as a `pyfunc` flavour, without pickling (extra
`mlflow`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deepmf.errors import import_optional
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.frames import read_pair_columns
from deepmf.models.base import Model
from deepmf.models.loading import load

__all__ = ["PairPredictor", "load_model", "log_model", "save_model"]

_FILE = "model.safetensors"


class PairPredictor:
    """The `pyfunc` of a model: it predicts the pairs of a frame with a column of rows and a column
    of columns."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> FloatArray:
        """Return a prediction for each line; unknown rows and columns are predicted by the means.

        The columns of the frame have the names of the training table, or usual ones, such as user
        and item.
        """
        form = self.model.entries_.train.form
        rows, columns = read_pair_columns(model_input, (form.row, form.column))
        return self.model.predict(rows, columns, unknown="fallback")

    def get_raw_model(self) -> Model:
        """Return the model; MLflow calls this method."""
        return self.model


def save_model(model: Model, path: str | Path, **options: Any) -> None:
    """Save a fitted model in MLflow's format; the options are those of
    `mlflow.pyfunc.save_model`."""
    pyfunc = _import_pyfunc()
    with _saved(model) as described:
        pyfunc.save_model(path=str(path), **described, **options)


def log_model(model: Model, name: str = "model", **options: Any) -> Any:
    """Log a fitted model in the active run of MLflow; the options are those of
    `mlflow.pyfunc.log_model`."""
    pyfunc = _import_pyfunc()
    with _saved(model) as described:
        return pyfunc.log_model(name=name, **described, **options)


def load_model(uri: str | Path) -> Model:
    """Load a model of deepmf, with all its methods, from a path or address of MLflow."""
    found: Model = _import_pyfunc().load_model(str(uri)).get_raw_model()
    return found


@contextmanager
def _saved(model: Model) -> Iterator[dict[str, Any]]:
    """Save a model for the block; yield the arguments that tell MLflow how to load it without
    unpickling."""
    with TemporaryDirectory() as folder:
        file = Path(folder, _FILE)
        model.save(file)
        needed = [f"deepmf=={metadata.version('deepmf')}"]
        yield {"loader_module": __name__, "data_path": str(file), "pip_requirements": needed}


def _load_pyfunc(data_path: str) -> PairPredictor:
    """Load the model; MLflow calls this function."""
    return PairPredictor(load(data_path))


def _import_pyfunc() -> Any:
    return import_optional(
        "mlflow.pyfunc", what="MLflow needs mlflow-skinny", install="'deepmf[mlflow]'"
    )
