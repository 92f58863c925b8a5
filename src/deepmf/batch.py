"""Scoring in batches for engines such as Ray Data, Spark and Dask: one picklable class, opened once
on each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast, get_args

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, check_count, import_optional
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.labels import Labels
from deepmf.models.base import Model
from deepmf.models.completion import complete_rows
from deepmf.models.loading import load
from deepmf.recommend.ranking import Search, join_ranked, rank_batches
from deepmf.recommend.request import Request, RequestOptions
from deepmf.scoring.pairs import Unknown, check_unknown
from deepmf.scoring.predictor import Predictor
from deepmf.training.threads import use_threads

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Scorer"]

Task = Literal["recommend", "predict", "complete"]
Batch = TypeVar("Batch")
Columns = dict[str, npt.NDArray[Any]]  # of a batch, by name

HISTORY = ("history_columns", "history_values")


class Scorer:
    """Scores batches of rows with a stored model: recommends columns, predicts pairs, or completes
    rows.

    An instance is small and picklable: it holds the path of the model and opens the model at its
    first batch. All workers must see the path; one named "*.model" is memory-mapped, and workers on
    one machine share its memory.

    A batch is an Arrow table or record batch, a dict of numpy arrays, or a pandas frame, and the
    result is of the same kind. It has the columns below and one line for each recommendation, pair
    or missing entry, in the order of the batch. Ids have the types of the model's labels: text, or
    64-bit integers.

    ============  ================  ================================================================
    task          columns read      columns of the result
    ============  ================  ================================================================
    "recommend"   `row`             `row`, `rank` (int32, from 1), `column`, `prediction`, and
                                    if the model has them `presence` and `liked`
    "predict"     `row`, `column`   `row`, `column`, `prediction`
    "complete"    `row`             `row`, `column`, `prediction`
    ============  ================  ================================================================

    A batch may also have `history_columns` and `history_values`, a list of columns and a list of
    values on each line: a line with a history is a new row, which is folded in on the worker;
    nothing is trained or stored.

    Parameters
    ----------
    model : the path of a model file.
    task : what to compute.
    n : the number of columns to recommend.
    distribution : add a column `distribution`, a list with the probability of each level.
    unknown : how `predict` treats unknown rows and columns, as in `Model.predict`. Other tasks
        leave unknown rows out, unless it is "error".
    threads : the number of threads of one call; engines run one worker on each core.
    options : for recommendations, the keyword arguments of `Model.recommend`.

    Examples
    --------
    >>> import tempfile, pathlib, numpy
    >>> from deepmf import Means, ObservedMatrix
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> ratings = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Alien"], [5, 2, 4])
    >>> _ = Means().fit(ratings).save(path)
    >>> found = Scorer(path, n=1)({"row": numpy.array(["bob"])})
    >>> found["column"].tolist(), found["rank"].tolist()
    (['Big'], [1])
    """

    def __init__(
        self,
        model: str | Path,
        task: Task = "recommend",
        *,
        n: int = 10,
        distribution: bool = False,
        unknown: Unknown = "error",
        threads: int = 1,
        **options: Unpack[RequestOptions],
    ) -> None:
        if task not in get_args(Task):
            raise BadSetting(f"task must be one of {', '.join(get_args(Task))}; got {task!r}")
        if options and task != "recommend":
            raise BadSetting(f"{', '.join(options)} are for recommendations; the task is {task!r}")
        check_count("threads", threads)
        check_unknown(unknown)
        self.path = Path(model)
        self.task = task
        self.distribution = distribution
        self.unknown = unknown
        self.threads = threads
        self.request = Request(n=n, **options)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "model"}

    @cached_property
    def model(self) -> Model:
        """The model, loaded when it is first needed."""
        model = load(self.path)
        if self.distribution and not model.gives_distribution:
            raise BadSetting(
                f"{type(model).__name__} predicts values without distributions; leave distribution=False"
            )
        return model

    def __call__(self, batch: Batch) -> Batch:
        """Return the results for a batch, as a batch of the same kind."""
        scores = self._score(_read_batch(batch))
        return cast(
            "Batch",
            scores if isinstance(batch, Mapping) else _build_alike(scores, self.schema, batch),
        )

    def iterate(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the results for each batch; this is the function that Spark's `mapInArrow`
        takes."""
        for batch in batches:
            yield self(batch)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the results."""
        arrow = _import_arrow()
        axes = self.model.entries_.rows, self.model.entries_.columns
        row, column = (
            arrow.int64() if _are_integers(labels) else arrow.string() for labels in axes
        )
        fields = {
            "row": row,
            "rank": arrow.int32(),
            "column": column,
            "prediction": arrow.float64(),
        }
        if self.task != "recommend":
            del fields["rank"]
        fields |= dict.fromkeys(self._chances, arrow.float64())
        if self.distribution:
            fields["distribution"] = arrow.list_(arrow.float64())
        return arrow.schema(list(fields.items()))

    @property
    def _chances(self) -> list[str]:
        """The probabilities beside each recommendation, by name."""
        if self.task != "recommend":
            return []
        has_probability = self.model.make_ranker(self.request).known_chances
        return [name for name in ("presence", "liked") if has_probability[name]]

    @property
    def spark_schema(self) -> str:
        """The schema of the results as Spark writes it, such as `row string, rank int, ...`."""
        names = {"int64": "bigint", "int32": "int", "double": "double", "string": "string"}
        return ", ".join(
            f"`{field.name}` {names.get(str(field.type), 'array<double>')}" for field in self.schema
        )

    @property
    def empty_frame(self) -> Any:
        """An empty pandas frame of the results, which Dask takes as `meta`."""
        return self.schema.empty_table().to_pandas()

    def _score(self, batch: Columns) -> Columns:
        needed_names = ("row", "column") if self.task == "predict" else ("row",)
        missing = [name for name in needed_names if name not in batch]
        if missing:
            raise BadEntries(
                f"a batch to {self.task} needs the column {missing[0]!r}; it has {', '.join(batch) or 'none'}"
            )
        with use_threads(self.threads):
            score = {
                "recommend": self._recommend,
                "predict": self._predict,
                "complete": self._complete,
            }[self.task]
            parts = [score(rows, batch) for rows in self._find_rows(batch)]
            scores = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        # Known rows come before new ones: the lines of the batch give the order.
        order = np.argsort(scores.pop("line"), kind="stable")
        return {name: values[order] for name, values in scores.items()}

    def _find_rows(self, batch: Columns) -> list[_Rows]:
        model, labels = self.model, _convert_labels(batch["row"], self.model.entries_.rows)
        lines = np.arange(labels.size)
        is_new = np.zeros(labels.size, dtype=bool)
        rows = []
        if all(name in batch for name in HISTORY):
            # it may be None or NaN
            listed = (
                history if isinstance(history, Sized) else () for history in batch[HISTORY[0]]
            )
            is_new = np.array([len(history) > 0 for history in listed], dtype=bool)
            if is_new.any():
                rows.append(self._fold_in(labels, lines[is_new], batch))
        known_lines = lines[~is_new]
        find = (
            model.entries_.rows.positions if self.unknown == "error" else model.entries_.rows.find
        )
        at = find(labels[known_lines].tolist())
        if self.task != "predict":
            known_lines, at = known_lines[at >= 0], at[at >= 0]
        return [
            _Rows(
                known_lines,
                labels[known_lines],
                at,
                model.predictor_,
                model.entries_.seen_columns,
                model,
            ),
            *rows,
        ]

    def _fold_in(self, given: npt.NDArray[Any], lines: IndexArray, batch: Columns) -> _Rows:
        columns = self.model.entries_.columns
        histories = [
            (_convert_labels(np.asarray(given_columns), columns), np.asarray(values, dtype=float))
            for given_columns, values in zip(*(batch[name][lines] for name in HISTORY), strict=True)
        ]
        folded = self.model.fold_in_many(histories, ordered=True)
        return _Rows(
            lines,
            given[lines],
            np.arange(lines.size),
            folded.predictor,
            folded.observed.take,
            folded,
        )

    def _recommend(self, rows: _Rows, _: Columns) -> Columns:
        if rows.lines.size == 0:
            nothing = np.empty(0, dtype=np.int64)
            chances: dict[str, Any] = dict.fromkeys(self._chances, np.empty(0))
            return (
                self._build(rows, nothing, nothing, np.empty(0), rank=nothing.astype(np.int32))
                | chances
            )
        search = Search.of(
            self.model.entries_, rows.source.make_ranker(self.request), rows.observed, self.request
        )
        best = join_ranked(rank_batches(search, rows.at))
        of, place = np.nonzero(~np.isnan(best.values))
        columns = best.columns[of, place]
        chances = {name: getattr(best, name)[of, place] for name in self._chances}
        return (
            self._build(
                rows, of, columns, best.values[of, place], rank=(place + 1).astype(np.int32)
            )
            | chances
        )

    def _predict(self, rows: _Rows, batch: Columns) -> Columns:
        model = self.model
        column_labels = _convert_labels(batch["column"], model.entries_.columns)[rows.lines]
        of = np.arange(rows.lines.size)
        if rows.source is not model or self.unknown == "error":
            columns = model.entries_.columns.positions(column_labels)
            return self._build(rows, of, columns, rows.predictor.predict(rows.at, columns))
        pairs = rows.labels.tolist(), column_labels.tolist()
        predictions = {"line": rows.lines, "row": rows.labels, "column": column_labels}
        predictions["prediction"] = model.predict(*pairs, unknown=self.unknown)
        if self.distribution:
            predictions["distribution"] = model.predict_distribution(*pairs, unknown=self.unknown)
        return predictions

    def _complete(self, rows: _Rows, _: Columns) -> Columns:
        entries, parts = self.model.entries_, []
        start = 0
        for part in complete_rows(entries, rows.predictor, rows.at, rows.observed):
            of, columns = np.nonzero(~part.observed)
            parts.append(self._build(rows, start + of, columns, part.values[of, columns]))
            start += part.rows.size
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _build(
        self, rows: _Rows, of: IndexArray, columns: IndexArray, values: FloatArray, **more: Any
    ) -> Columns:
        """Return the lines for pairs of a row, counted within `rows`, and a column."""
        results: Columns = {"line": rows.lines[of], "row": rows.labels[of], **more}
        results |= {"column": self.model.entries_.columns[columns], "prediction": values}
        if self.distribution:
            predictor = rows.source.predictor_at(self.request.at)
            results["distribution"] = predictor.distribution(rows.at[of], columns).probabilities
        return results


@dataclass(frozen=True)
class _Rows:
    """Rows of a batch: their lines and labels, and their positions in a predictor.

    source: the model of known rows, or the folded rows.
    """

    lines: IndexArray
    labels: npt.NDArray[Any]
    at: IndexArray
    predictor: Predictor
    observed: Callable[[IndexArray], AxisEntries]
    source: Any


def _read_batch(batch: Any) -> Columns:
    family = "dict" if isinstance(batch, Mapping) else type(batch).__module__.partition(".")[0]
    if family == "dict":
        return {name: np.asarray(values) for name, values in batch.items()}
    if family == "pandas":
        return {str(name): batch[name].to_numpy() for name in batch.columns}
    if family != "pyarrow":
        raise BadEntries(
            f"a batch is an Arrow table, a dict of numpy arrays or a pandas frame; got {type(batch).__name__}"
        )
    arrays = {}
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        if name in HISTORY:
            arrays[name] = np.empty(len(values), dtype=object)
            arrays[name][:] = values.to_pylist()
        else:
            arrays[name] = values.to_numpy(zero_copy_only=False)
    return arrays


def _build_alike(results: Columns, schema: pa.Schema, batch: Any) -> Any:
    """Return columns as an Arrow or pandas batch of the kind of another."""
    arrow = _import_arrow()
    arrays = [
        arrow.array(
            results[field.name].tolist() if results[field.name].ndim > 1 else results[field.name],
            type=field.type,
        )
        for field in schema
    ]
    build = arrow.RecordBatch if type(batch).__name__ == "RecordBatch" else arrow.Table
    converted = build.from_arrays(arrays, schema=schema)
    return converted if type(batch).__module__.startswith("pyarrow") else converted.to_pandas()


def _convert_labels(given: npt.NDArray[Any], labels: Labels) -> npt.NDArray[Any]:
    """Return ids as labels of an axis: 64-bit integers, or text."""
    are_integers = _are_integers(labels)
    if are_integers and given.dtype.kind in "iu":
        return given.astype(np.int64)
    items = given.tolist()
    wrong = [item for item in items if not isinstance(item, int if are_integers else str | int)]
    if wrong:
        kind = "integers" if are_integers else "text"
        raise BadEntries(
            f"the {labels.axis}s of the model are {kind}; a batch has the {labels.axis} {wrong[0]!r}"
        )
    return np.array(
        items if are_integers else list(map(str, items)), dtype=np.int64 if are_integers else object
    )


def _are_integers(labels: Labels) -> bool:
    return len(labels) > 0 and labels[:1].dtype.kind == "i"


def _import_arrow() -> Any:
    return import_optional(
        "pyarrow", what="batches of Arrow and pandas need pyarrow", install="pyarrow"
    )
