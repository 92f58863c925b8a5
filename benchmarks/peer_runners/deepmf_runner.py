"""deepmf itself, through its public interface: every model, with or without features, on the
CPU."""

import warnings
from typing import Any, NamedTuple

import exchange
import numpy as np
import numpy.typing as npt

import deepmf
from deepmf.errors import DeepMFWarning


class Fitted(NamedTuple):
    """A fitted model that knows the validation entries too, and what its fit chose."""

    model: Any
    with_features: bool
    noted: dict[str, Any]


def make_model(settings: exchange.Settings) -> Any:
    """Return the model that the settings name, which imports it."""
    options = {
        name: value
        for name, value in settings.items()
        if name not in ("model", "features", "all_entries")
    }
    # a file of settings has no null
    options |= {"presence": None} if options.get("presence") == "none" else {}
    return getattr(deepmf, settings["model"])(**options)


def fit(task: exchange.Task, settings: exchange.Settings) -> Fitted:
    """Fit to training entries, validation entries choosing; these describe rows and columns in the
    end.

    With `all_entries`, fit to both; a model that needs held-out entries chooses its own.
    """
    # rows and columns without entries are asked for on purpose
    warnings.simplefilter("ignore", DeepMFWarning)
    with_features = bool(settings.get("features"))
    model = make_model(settings)
    known = task.known
    rows, columns = np.unique(known.rows), np.unique(known.columns)
    train, validation = (
        _matrix(task, part, rows, columns) for part in (task.train, task.validation)
    )
    if settings.get("all_entries"):
        train, validation = (
            _matrix(task, known, rows, columns),
            validation.take_entries(np.empty(0, dtype=np.int64)),
        )
    given = _features(task, rows, columns) if with_features else {}
    model.fit(train, validation if validation.n_entries else None, progress=False, **given)
    if validation.n_entries:
        model = model.extend(validation)
    chosen = {
        name: value for name, value in model.chosen_.items() if isinstance(value, int | float | str)
    }
    return Fitted(
        model,
        with_features,
        {"chosen": chosen, "threads": getattr(model.history_, "threads", None)},
    )


def reply(fitted: Fitted, task: exchange.Task, question: exchange.Question) -> exchange.Answer:
    """Extend by what has become known, without training, and predict."""
    known = task.known
    rows, columns = np.unique(question.rows), np.unique(question.columns)
    model = fitted.model
    new_rows, new_columns = np.setdiff1d(rows, known.rows), np.setdiff1d(columns, known.columns)
    if question.extension.rows.size or new_rows.size or new_columns.size:
        known_rows = np.union1d(question.extension.rows, new_rows)
        known_columns = np.union1d(question.extension.columns, new_columns)
        given = _features(task, new_rows, new_columns) if fitted.with_features else {}
        model = model.extend(_matrix(task, question.extension, known_rows, known_columns), **given)
    values = model.predict(question.rows, question.columns)
    if not task.levels.size or not model.gives_distribution:
        return exchange.Answer(values)
    return exchange.Answer(values, model.predict_distribution(question.rows, question.columns))


def _matrix(
    task: exchange.Task,
    entries: exchange.Entries,
    rows: exchange.Positions,
    columns: exchange.Positions,
) -> deepmf.ObservedMatrix:
    scale = deepmf.Scale(levels=task.levels) if task.levels.size else None
    parts = entries.rows, entries.columns, entries.values
    return deepmf.ObservedMatrix.from_entries(
        *parts, scale=scale, row_labels=rows, column_labels=columns
    )


def _features(
    task: exchange.Task, rows: exchange.Positions, columns: exchange.Positions
) -> dict[str, Any]:
    """Return the features of some rows and columns as `fit` and `extend` take them."""
    named = {"row_features": ("raw_row_", rows), "column_features": ("raw_column_", columns)}
    return {
        name: _table(task, prefix, labels)
        for name, (prefix, labels) in named.items()
        if labels.size
    }


def _table(task: exchange.Task, prefix: str, labels: exchange.Positions) -> Any:
    import polars as pl

    own = {
        name.removeprefix(prefix): array[labels]
        for name, array in task.raw.items()
        if name.startswith(prefix)
    }
    frame = pl.DataFrame(
        {"label": labels} | {name: _column(name, array) for name, array in own.items()}
    )
    return deepmf.Features.from_frame(frame, label="label")


def _column(name: str, array: npt.NDArray[Any]) -> Any:
    if name == "genres":
        return [text.split("|") if text else [] for text in array.tolist()]
    if array.dtype.kind == "f":
        return [None if np.isnan(value) else value for value in array.tolist()]
    return array.tolist()


if __name__ == "__main__":
    exchange.main(fit, reply, packages=["deepmf", "torch", "numpy"], prepare=make_model)
