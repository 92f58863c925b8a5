"""The imputer: any model that extends to new rows, as a transformer of scikit-learn that completes tables."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from deepmf.errors import BadEntries, BadSetting, CannotExtend, NothingObserved
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.folded import folded_matrix
from deepmf.models.model import Model
from deepmf.models.ranking import batches
from deepmf.models.registry import HOMES, model_class
from deepmf.sklearn.observed_table import CHECKS, TableEntries, dense_copy
from deepmf.sklearn.units import ColumnUnits

# The models' own defaults are for a million ratings; these are for tables of some thousand rows and some ten columns,
# chosen on masked entries of generated and of public tables.
_BRANCHES = {
    "hidden_sizes": (256,),
    "latent_size": 64,
    "dropout": 0.8,
    "epochs": 100,
    "learning_rate": 0.03,
    "averaging": 0.99,
}
_ORDINAL = {
    "hidden_sizes": (128,),
    "latent_size": 32,
    "dropout": 0.3,
    "epochs": 100,
    "learning_rate": 0.01,
    "mask_rate": 0.3,
}
TABLE_SETTINGS: dict[str, dict[str, Any]] = {
    "dmf": _BRANCHES,
    "dmf-d": _BRANCHES,
    "dmf-o": _ORDINAL,
    "als": {"penalty": 0.05},
}

# Settings that are parameters of the imputer, so that a search can vary them by name.
_PARAMETERS = ("hidden_sizes", "latent_size", "dropout", "epochs", "learning_rate")


class DMFImputer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Completes tables: an array with NaN, a frame of pandas or polars, a scipy sparse matrix (absent is missing).

    Observed entries are returned unchanged. Every row is completed as a new one (area II: extension without training),
    the rows of `fit` too, so that the completion of a row depends on that row alone. A row without any entry gets the
    columns' means; so does every row where `fit` saw less than two rows or two columns with entries. Predictions
    stay within the range of the column in `fit`.

    model: the model by its name ("dmf", "als", "means", ...); it must be able to predict for new rows.
    hidden_sizes, latent_size, dropout, epochs, learning_rate: settings of the model (None: as fits a table).
    settings: further settings of the model, by name.
    scale: "columns" (every column has units of its own, and is standardised), "shared" (all columns have the same
        units, such as stars or Likert points, which the model sees as they are) or that shared `Scale`.
    answers: "values", or "levels": the nearest level in columns whose values repeat; with a shared scale of levels,
        the model's own choice of a level.
    keep_empty_features: whether a column without any entry in `fit` is kept, filled with 0, or left out with a warning.
    random_state: None, a seed or a `numpy.random.RandomState`.
    verbose: whether `fit` shows each epoch on standard error (None: on a terminal and in notebooks).

    After `fit`, `model_` is the fitted model (None where there was too little to learn from), `units_` what its values
    mean, `known_columns_` the positions of the columns that had entries.

    >>> table = np.array([[1, 100.0], [2, 200.0], [3, np.nan], [4, 400.0], [5, 500.0], [np.nan, 150.0]])
    >>> imputer = DMFImputer(model="als", random_state=0).fit(table)
    >>> imputer.transform([[3, np.nan], [np.nan, 420], [np.nan, np.nan]]).round()
    array([[  3., 279.],
           [  4., 420.],
           [  3., 270.]])
    """

    model_: Model | None
    units_: ColumnUnits
    known_columns_: npt.NDArray[np.intp]

    def __init__(
        self,
        model: str = "dmf",
        *,
        hidden_sizes: Sequence[int] | None = None,
        latent_size: int | None = None,
        dropout: float | None = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        settings: Mapping[str, Any] | None = None,
        scale: str | Scale = "columns",
        answers: str = "values",
        keep_empty_features: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | None = False,
    ) -> None:
        self.model = model
        self.hidden_sizes = hidden_sizes
        self.latent_size = latent_size
        self.dropout = dropout
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.settings = settings
        self.scale = scale
        self.answers = answers
        self.keep_empty_features = keep_empty_features
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 (the name that scikit-learn passes)
        """Learn from the observed entries of a table; `y` is not used."""
        model = self._new_model()
        entries = TableEntries.of(validate_data(self, X, **CHECKS))
        if entries.values.size == 0:
            raise BadEntries(f"there is nothing to learn: none of {entries.shape[0]} x {entries.shape[1]} is observed")
        self.known_columns_ = np.unique(entries.columns)
        self._warn_of_empty_columns()
        entries = entries.take_columns(self.known_columns_)
        self.units_ = self._units(entries)
        enough = min(np.unique(entries.rows).size, self.known_columns_.size) >= 2
        matrix = self._matrix(entries)
        progress = None if self.verbose is None else bool(self.verbose)  # scikit-learn's own also take 0 and 1
        self.model_ = model.fit(matrix, progress=progress) if enough else None
        return self

    def transform(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """Return a table with every missing entry filled in."""
        check_is_fitted(self)
        completed = dense_copy(validate_data(self, X, reset=False, **CHECKS))
        known: npt.NDArray[Any] = completed[:, self.known_columns_]
        if isinstance(self.scale, Scale):
            self._matrix(TableEntries.of(known))  # refuses what is off the scale by its place in this table
        for rows in batches(np.arange(known.shape[0]), width=known.shape[1]):
            known[rows] = self._completed(known[rows])
        if not self.keep_empty_features:
            return known
        completed[:, self.known_columns_] = known
        completed[np.isnan(completed)] = 0.0
        return completed

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the columns that `transform` gives."""
        check_is_fitted(self)
        names: npt.NDArray[np.object_] = _check_feature_names_in(self, input_features)
        return names if self.keep_empty_features else names[self.known_columns_]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _new_model(self) -> Model:
        found = model_class(self.model)
        if "II" not in found.predicts:
            able = ", ".join(name for name in HOMES if "II" in model_class(name).predicts)
            raise CannotExtend(f"{self.model!r} cannot complete new rows: {found.cannot}; those that can are {able}")
        given = dict(self.settings or {})
        named = {name: value for name in _PARAMETERS if (value := getattr(self, name)) is not None}
        if "seed" in given:
            raise BadSetting("settings cannot have 'seed', which comes from random_state")
        if twice := given.keys() & named.keys():
            raise BadSetting(f"{min(twice)} is given twice, as a parameter and in settings")
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return found(**(TABLE_SETTINGS.get(self.model, {}) | given | named | {"seed": seed}))

    def _units(self, entries: TableEntries) -> ColumnUnits:
        if self.answers not in ("values", "levels"):
            raise BadSetting(f"answers must be 'values' or 'levels'; got {self.answers!r}")
        if isinstance(self.scale, Scale):
            return ColumnUnits.shared(entries, self.scale)
        if self.scale not in ("columns", "shared"):
            raise BadSetting(f"scale must be 'columns', 'shared' or a Scale; got {self.scale!r}")
        return ColumnUnits.own(entries) if self.scale == "columns" else ColumnUnits.shared(entries, None)

    def _matrix(self, entries: TableEntries) -> ObservedMatrix:
        """Return entries as the model sees them; only a scale that was given refuses what it does not hold."""
        seen = entries if isinstance(self.scale, Scale) else self.units_.seen(entries)
        names = _check_feature_names_in(self)[self.known_columns_]
        return seen.matrix(self.units_.scale, column_labels=names)

    def _completed(self, known: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Complete some rows (rows, known columns)."""
        missing = np.isnan(known)
        described = missing.any(axis=1) & ~missing.all(axis=1) & (self.model_ is not None)
        by_mean = np.nonzero(missing & ~described[:, None])
        known[by_mean] = self._answers(self.units_.means[by_mean[1]], by_mean[1])
        if self.model_ is not None and described.any():
            by_model = np.nonzero(missing[described])
            rows = known[described]
            rows[by_model] = self._predicted(self.model_, rows, *by_model)
            known[described] = rows
        return known

    def _predicted(
        self, model: Model, table: npt.NDArray[Any], rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]
    ) -> FloatArray:
        """Return the predictions for the missing cells of rows that have entries, all of them new to the model."""
        folded = folded_matrix(model.entries_, model.predictor_, self._matrix(TableEntries.of(table)))
        labels = model.column_labels_[columns]
        if self.answers == "levels" and self.units_.scale.levels is not None:
            return folded.predict_levels_at(rows, labels)
        return self._answers(self.units_.values(folded.predict_at(rows, labels), columns), columns)

    def _answers(self, values: FloatArray, columns: npt.NDArray[np.intp]) -> FloatArray:
        return self.units_.levels(values, columns) if self.answers == "levels" else values

    def _warn_of_empty_columns(self) -> None:
        names = _check_feature_names_in(self)
        empty = np.delete(names, self.known_columns_).tolist()
        if empty and not self.keep_empty_features:
            shown = ", ".join(map(repr, empty[:3])) + (", ..." if len(empty) > 3 else "")
            warnings.warn(
                f"{len(empty)} column(s) without any entry are left out ({shown}); keep_empty_features=True keeps them",
                NothingObserved,
                stacklevel=3,
            )
