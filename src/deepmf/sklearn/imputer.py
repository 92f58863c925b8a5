"""The imputer: a scikit-learn transformer that completes tables by any model that extends to new rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import _safe_indexing, check_array, check_random_state
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import _check_feature_names_in, _num_samples, check_is_fitted, validate_data

from deepmf.errors import BadEntries, BadSetting, NothingObserved, warn
from deepmf.formatting import format_quantity
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.extras import check_weights
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.matrix.features import Features
from deepmf.matrix.frames import is_far
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.recommend.ranking import batches
from deepmf.scoring.distribution import Interval, check_coverage
from deepmf.sklearn.blend import EFFORTS, METRICS, MOST_COLUMNS, WHOLE_ROWS, Residuals, fit_blend, fit_whole_rows
from deepmf.sklearn.candidates import AUTO, ModelChoice, TableModels, choose
from deepmf.sklearn.completers import ByModel, Completer
from deepmf.sklearn.constraints import check_constraints, keep_constraints
from deepmf.sklearn.draws import Draws, FactorDraws, JointDraws
from deepmf.sklearn.scores import HiddenScore, score_residuals
from deepmf.sklearn.table import (
    CHECKS,
    REACH,
    ColumnCodes,
    ColumnUnits,
    EncodedTable,
    FeatureColumns,
    MaskArray,
    MixedTable,
    TableEntries,
    dense_copy,
    list_dates,
    mark_missing,
)
from deepmf.training.progress import show_fits


class FilledCells(NamedTuple):
    """Filled cells: their values (cells,), and the ends of their intervals (2, cells) if wanted."""

    values: FloatArray
    ends: FloatArray | None


@dataclass(frozen=True, eq=False)
class Filler:
    """Fills in rows that are new to the completer, in the columns that had entries.

    completer: None where there was too little to learn from.
    seen: the entries of the fit, in the units of the completer.
    residuals: of hidden cells, which tell how far predictions are off; where there are none, the model's own
        distribution does.
    shares: of each column whether its values are the shares of a category, which are never drawn themselves.
    random: what values are drawn by; None where they are predicted.
    coverage: of intervals; None where there are none.
    """

    completer: Completer | None
    units: ColumnUnits
    seen: TableEntries
    to_levels: bool
    residuals: Residuals | None
    shares: MaskArray
    random: np.random.Generator | None
    coverage: float | None

    def check(self) -> None:
        """Raise `BadSetting` if draws or intervals are wanted and the completer predicts no distribution."""
        uncertain = self.random is not None or self.coverage is not None
        completer = self.completer
        if uncertain and completer is not None and not completer.gives_distribution and self.residuals is None:
            raise BadSetting(
                f"{completer.name} predicts a value, not a distribution, so there are no intervals; "
                "model='auto' and model='dmf-o' give them"
            )

    def complete(
        self,
        known: npt.NDArray[np.floating],
        ends: FloatArray | None = None,
        features: FeatureVectors | None = None,
    ) -> None:
        """Fill in rows (rows, columns) in place, and the ends of their intervals (2, rows, columns) too.

        features: of each row, where the model was fitted with any.
        """
        missing = np.isnan(known)
        nothing = missing.all(axis=1) if features is None else missing.all(axis=1) & ~features.are_known
        described = missing.any(axis=1) & ~nothing & (self.completer is not None)
        for by_completer in (False, True):
            rows = np.flatnonzero(described == by_completer)
            row_of, column_of = np.nonzero(missing[rows])
            if row_of.size == 0:
                continue
            if by_completer:
                own = None if features is None else features.take(rows)
                filled = self._by_completer(known[rows], row_of, column_of, own)
            else:
                filled = self._by_column(row_of, column_of)
            known[rows[row_of], column_of] = filled.values
            if ends is not None:
                ends[:, rows[row_of], column_of] = filled.ends

    def _by_completer(
        self,
        table: npt.NDArray[np.floating],
        rows: IndexArray,
        columns: IndexArray,
        features: FeatureVectors | None,
    ) -> FilledCells:
        completer, scale = self.completer, self.units.scale
        assert completer is not None
        entries = self.units.standardise(TableEntries.of(table))
        uncertain = self.random is not None or self.coverage is not None
        if isinstance(completer, ByModel) and not uncertain and self.to_levels and scale.levels is not None:
            labels = completer.model.column_labels_[columns]
            return FilledCells(completer.fold_in(entries, features).predict_levels_at(rows, labels), None)
        units, ends = completer.predict(entries, rows, columns, features), None
        if self.residuals is not None:
            if self.coverage is not None:
                ends = np.stack([units + self.residuals.quantiles(columns, tail) for tail in self._tails])
            if self.random is not None:
                units = np.where(self.shares[columns], units, units + self.residuals.draw(columns, self.random))
        elif isinstance(completer, ByModel) and uncertain:
            found = completer.fold_in(entries, features).predictor.distribution(rows, columns)
            if self.coverage is not None:
                ends = found.ends(self.coverage, scale).T
            if self.random is not None:
                units = found.sample(self.random.random(rows.size), scale)
        return self._in_units_of_columns(units, ends, columns)

    def _by_column(self, rows: IndexArray, columns: IndexArray) -> FilledCells:
        """Fill in cells of rows without entries by what the columns showed: means, or the values themselves."""
        values: FloatArray = self.units.means[columns]
        if self.completer is None:
            scales = [self.units.column_scales[column] for column in columns]
            ends = np.array([[scale.low for scale in scales], [scale.high for scale in scales]])
            return FilledCells(self._legal(values, columns), ends)
        if self.random is None and self.coverage is None:
            return FilledCells(self._legal(values, columns), None)
        ends, units = np.empty((2, columns.size)), np.empty(columns.size)
        for column in np.unique(columns):
            own = self.seen.values[self.seen.columns == column]
            asked = columns == column
            ends[:, asked] = np.quantile(own, self._tails)[:, None]
            units[asked] = 0.0 if self.random is None else self.random.choice(own, int(asked.sum()))
        drawn = self._in_units_of_columns(units, ends, columns)
        predicted = self.shares[columns] | (self.random is None)
        return drawn._replace(values=np.where(predicted, self._legal(values, columns), drawn.values))

    @property
    def _tails(self) -> list[float]:
        return [(1.0 + side * (self.coverage or 0.0)) / 2.0 for side in (-1, 1)]

    def _in_units_of_columns(self, units: FloatArray, ends: FloatArray | None, columns: IndexArray) -> FilledCells:
        values = self._legal(self.units.values(units, columns), columns)
        return FilledCells(
            values, None if ends is None else np.stack([self.units.values(end, columns) for end in ends])
        )

    def round_drawn(self, drawn: FloatArray, given: npt.NDArray[np.floating]) -> FloatArray:
        """Return drawn rows with legal levels in the cells that `given` misses, if levels are wanted or shared."""
        if self.to_levels or self.units.scale.levels is not None:
            rows, columns = np.nonzero(np.isnan(given))
            drawn[rows, columns] = self.units.levels(drawn[rows, columns], columns)
        return drawn

    def _legal(self, values: FloatArray, columns: IndexArray) -> FloatArray:
        return self.units.levels(values, columns) if self.to_levels else values


# Completers of whole rows are robust to outliers, so their columns are clipped further out.
_WIDE_REACH = 10.0


# Settings that are parameters of the imputer, so that a search can vary them by name.
_PARAMETERS = ("hidden_sizes", "latent_size", "dropout", "epochs", "learning_rate")


class DMFImputer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fill in the missing values of a table: an array with NaN, a pandas or polars frame, or a scipy sparse matrix.

    Observed entries are returned unchanged. Every row is completed as a new row (area II: extension without training),
    including the rows of `fit`, so that its completion depends on that row alone. A row without entries gets the means
    of the columns, and so does every row if `fit` saw fewer than two rows or two columns with entries. Predictions
    stay within the range of the column in `fit`.

    Columns of text, categories and truth values are filled with their own categories. A frame is returned as a frame
    of the same column types, in which whole numbers stay whole and dates as they are, and an array of objects as an
    array of objects.

    Parameters
    ----------
    model
        "auto" blends a Gaussian of the rows with trees, with the weights that best predict the cells of each column
        when these are left out. For a table of more than 500 columns, a shared scale, feature columns, or given
        settings, it chooses among means, als and dmf-o instead. Or a name: "gaussian", "trees", "als", "dmf-o", or
        any model that can predict for new rows.
    metric
        The error of "auto" and "trees" that should be small: "rmse"; "mae", which predicts medians; or "both", which
        predicts the mean of the two.
    effort
        "normal", or "best" for larger forests in about five times the time.
    hidden_sizes, latent_size, dropout, epochs, learning_rate
        Settings of the model; None chooses them for a table. With "auto", they apply to the candidates that have them.
    settings
        Further settings of the model, by name.
    feature_columns
        Columns, by name or position, that describe the rows: numbers, categories, lists of categories
        (`Action|Comedy`) and dates. The model uses them as side information; they are returned unchanged.
    constraints
        Of imputed values, by the name of a column (its position in an array): `(low, high)` with None for no end,
        "whole" for whole numbers, a function of the completed table for a column that follows from others, such as a
        ratio, or a list of these.
    missing_values
        Mark of missing values beside NaN and None, such as -1 or "?".
    add_indicator
        Whether to append an indicator column for each column with missing values in `fit`.
    scale
        "columns" (each column has its own units and is standardised), "shared" (all columns have the same units, such
        as stars or Likert points), or the shared `Scale`.
    answers
        "values", or "levels": the nearest level in columns whose values repeat; with a shared scale of levels, the
        level that the model predicts.
    sample
        Whether `transform` draws missing values instead of predicting them: every call returns one table of
        `impute_many`.
    keep_empty_features
        Whether to keep a column without entries in `fit`, filled with 0, or to leave it out with a warning.
    random_state
        None, a seed or a `numpy.random.RandomState`.
    verbose
        Whether `fit` shows its progress on standard error; None: on a terminal and in notebooks.

    Attributes
    ----------
    model_
        The fitted model or blend; None where there was too little to learn from.
    weights_, chosen_model_
        Mean weight of each candidate in the blend, and the name of the candidate with the largest weight.
    hidden_errors_
        Error of each candidate of "auto" on cells that were left out, in standard deviations or in the units of a
        shared scale.
    score_
        Score on the cells hidden in `fit`, overall and of each column, with standard errors (`HiddenScore`); None where
        no cells were hidden, because a single model was asked for by name.
    left_out_
        Candidates of "auto" that do not suit the shape of the table, with the reasons.
    units_
        The units of the columns.
    known_columns_
        Positions of the columns with entries.

    >>> table = np.array([[1, 100.0], [2, 200.0], [3, np.nan], [4, 400.0], [5, 500.0], [np.nan, 150.0]])
    >>> imputer = DMFImputer(model="als", random_state=0).fit(table)
    >>> imputer.transform([[3, np.nan], [np.nan, 420], [np.nan, np.nan]]).round()
    array([[  3., 279.],
           [  4., 420.],
           [  3., 270.]])
    """

    # What a call of transform asks for is for the caller alone: a pipeline has none of it to hand on.
    __metadata_request__transform: ClassVar[dict[str, str]] = {"return_interval": UNUSED, "coverage": UNUSED}

    model_: Model | Completer | None
    units_: ColumnUnits
    known_columns_: npt.NDArray[np.intp]
    _codes: ColumnCodes | None
    chosen_model_: str
    weights_: dict[str, float]
    hidden_errors_: dict[str, float]
    score_: HiddenScore | None
    left_out_: dict[str, str]

    def __init__(
        self,
        model: str = AUTO,
        *,
        metric: str = "both",
        effort: str = "normal",
        hidden_sizes: Sequence[int] | None = None,
        latent_size: int | None = None,
        dropout: float | None = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        settings: Mapping[str, Any] | None = None,
        feature_columns: Sequence[str | int] | None = None,
        constraints: Mapping[Any, Any] | None = None,
        missing_values: Any = np.nan,
        add_indicator: bool = False,
        scale: str | Scale = "columns",
        answers: str = "values",
        sample: bool = False,
        keep_empty_features: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | None = False,
    ) -> None:
        self.model = model
        self.metric = metric
        self.effort = effort
        self.hidden_sizes = hidden_sizes
        self.latent_size = latent_size
        self.dropout = dropout
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.settings = settings
        self.feature_columns = feature_columns
        self.constraints = constraints
        self.missing_values = missing_values
        self.add_indicator = add_indicator
        self.scale = scale
        self.answers = answers
        self.sample = sample
        self.keep_empty_features = keep_empty_features
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803 (scikit-learn's name)
        """Learn from the observed entries of a table; `y` is not used.

        `sample_weight` is how much each row counts (default: 1): a row of weight 2 counts as the row twice, and a row
        of weight 0 as if it had not been given.
        """
        X, weights = self._read_weights(X, sample_weight)  # noqa: N806
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self._random = np.random.default_rng(self._seed)
        self._models.check()
        table = self._read(X, reset=True)
        entries = TableEntries.of(table.numbers)._replace(row_weights=weights)
        if entries.values.size == 0:
            raise BadEntries(
                f"the table of {entries.shape[0]} x {entries.shape[1]} has no observed entry to learn from"
            )
        self._known = np.unique(entries.columns)
        self._kept = np.unique(table.sources[self._known])
        places = self._kept if self._features is None else self._features.rest[self._kept]
        self.known_columns_ = places.astype(np.intp)
        self._indicated = np.flatnonzero(table.missing().any(axis=0)) if self.add_indicator else None
        check_constraints(self.constraints or {}, self._constraint_names)
        self._warn_of_empty_columns()
        entries = entries.take_columns(self._known)
        self._warn_of_codes(entries)
        candidates = self._models.candidates(entries.shape)
        self.left_out_ = self._models.explain_left_out(entries.shape)
        self._warn_of_width(candidates)
        self.units_ = self._units(entries, reach=_WIDE_REACH if candidates[0] in (AUTO, *WHOLE_ROWS) else REACH)
        self._row_features = self._read_features(X)
        self._learn(candidates, entries, table.sources[self._known])
        self._row_features = None  # the model has what is needed of them
        return self

    @staticmethod
    def _read_weights(X: Any, sample_weight: Any) -> tuple[Any, FloatArray | None]:  # noqa: N803
        """Return the rows of a table that count, and their weights; None where all weights are 1."""
        if sample_weight is None:
            return X, None
        weights = check_weights(np.asarray(sample_weight), _num_samples(X), of="row")
        kept = np.flatnonzero(weights)
        if kept.size == 0:
            raise BadEntries("every sample_weight is zero, so there is nothing to learn from")
        X = X if kept.size == weights.size else _safe_indexing(X, kept)  # noqa: N806
        return X, None if np.all(weights[kept] == 1) else weights[kept]

    def transform(self, X: Any, *, return_interval: bool = False, coverage: float = 0.9) -> Any:  # noqa: N803
        """Return a table with every missing entry filled in.

        With `return_interval`, a pair: the table, and an `Interval` of two arrays (rows, columns) between which the
        missing values lie with about this probability; both are the value itself where that is observed, and NaN
        in columns of text and categories.
        """
        check_is_fitted(self)
        check_coverage(coverage)
        table = self._read(X, reset=False)
        random = self._random if self.sample else None
        number = int(self._random.integers(1 << 31)) if self.sample else 0
        return self._complete(X, table, random, coverage if return_interval else None, number)

    def impute_many(self, X: Any, m: int = 20, *, seed: int = 0) -> Iterator[Any]:  # noqa: N803
        """Yield `m` completed tables for multiple imputation, frames for a frame.

        Each table is a draw from a posterior, of Gaussians or, with `model="bayesian"`, of BayesianMF: parameters are
        drawn first, then the missing cells, those of a row together. Analyse every table, and combine the estimates by
        `pool`.

        Parameters
        ----------
        X
            The table to complete, usually that of `fit`.
        m
            Number of completed tables.
        seed
            The same seed gives the same tables.

        >>> random = np.random.default_rng(0)
        >>> x = random.normal(size=300)
        >>> table = np.column_stack([x, x + random.normal(size=300)])
        >>> table[random.random(300) < 0.3, 1] = np.nan
        >>> means = [each[:, 1].mean() for each in DMFImputer(random_state=0).fit(table).impute_many(table, m=3)]
        >>> len(set(means))
        3
        """
        check_is_fitted(self)
        if isinstance(m, bool) or not isinstance(m, int | np.integer) or m < 1:
            raise BadSetting(f"m must be a whole number of at least 1; got {m!r}")
        if self._completer is not None and self._draws is None:
            warn(
                f"cells are drawn one by one from a single fit, because the table has feature columns or more than "
                f"{MOST_COLUMNS} columns: pooled intervals will be too narrow; model='bayesian' draws them together"
            )
        table = self._read(X, reset=False)
        streams = np.random.SeedSequence(seed).spawn(int(m))
        return (
            self._complete(X, table, np.random.default_rng(stream), None, number)
            for number, stream in enumerate(streams)
        )

    def trace_means(self, *, chains: int = 4, seed: int = 0) -> dict[str, FloatArray] | None:
        """Return the means of each column (chains, steps) along the chains that draws start with.

        Means are in standard deviations. None where draws have no chain.
        """
        check_is_fitted(self)
        if not isinstance(self._draws, JointDraws):
            return None
        traces: list[list[FloatArray]] = [[] for _ in range(chains)]
        for stream, trace in zip(np.random.SeedSequence(seed).spawn(chains), traces, strict=True):
            self._draws.draw_parameters(np.random.default_rng(stream), trace)
        return dict(zip(map(str, self._labels), np.transpose(traces, (2, 0, 1)), strict=True))

    def _complete(
        self,
        X: Any,  # noqa: N803
        table: EncodedTable,
        random: np.random.Generator | None,
        coverage: float | None,
        number: int = 0,
    ) -> Any:
        """Fill in a table that was read, by draws with `random`; with a coverage, also return intervals.

        number: of the table among those of `impute_many`.
        """
        joint = None if random is None else self._draws
        filler = self._filler(None if joint is not None else random, coverage)
        filler.check()
        numbers = dense_copy(table.numbers)
        known: npt.NDArray[Any] = numbers[:, self._known]
        if isinstance(self.scale, Scale):
            self._matrix(TableEntries.of(known))  # refuses what is off the scale by its place in this table
        features, drawn = self._vectors(X), None
        if joint is not None and random is not None:
            drawn = joint.draw(known, random, number=number, features=features)
        known_ends = None if coverage is None else np.stack([known, known]).astype(np.float64)
        if drawn is None or coverage is not None:
            for rows in batches(np.arange(known.shape[0]), width=known.shape[1]):
                some, ends = known[rows], None if known_ends is None else known_ends[:, rows]
                filler.complete(some, ends, None if features is None else features.take(rows))
                known[rows] = some
                if known_ends is not None:
                    known_ends[:, rows] = ends
        numbers[:, self._known] = known if drawn is None else filler.round_drawn(drawn, numbers[:, self._known])
        kept = np.arange(table.sources[-1] + 1) if self.keep_empty_features else self._kept
        completed = table.complete(X, numbers, names=self._names, kept=kept, indicators=self._indicated, random=random)
        if self.constraints:
            gaps = dict(zip(self._constraint_names, table.missing().T, strict=True))
            completed = keep_constraints(completed, gaps, self.constraints)
        if known_ends is None:
            return completed
        whole_ends = np.stack([numbers, numbers]).astype(np.float64)
        whole_ends[:, :, self._known] = known_ends
        return completed, Interval(*(table.ends(X, np.nan_to_num(end, nan=0.0), kept) for end in whole_ends))

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the columns that `transform` gives."""
        check_is_fitted(self)
        names: npt.NDArray[np.object_] = _check_feature_names_in(self, input_features)
        others = np.empty(0, dtype=np.int64) if self._features is None else self._features.others
        kept = names if self.keep_empty_features else names[np.union1d(self.known_columns_, others)]
        completed = names if self._features is None else names[self._features.rest]
        indicated: list[Any] = [] if self._indicated is None else completed[self._indicated].tolist()
        return np.array([*kept, *(f"missingindicator_{name}" for name in indicated)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _names(self) -> npt.NDArray[np.object_]:
        names: npt.NDArray[np.object_] = _check_feature_names_in(self)
        return names if self._features is None else names[self._features.rest]

    @property
    def _constraint_names(self) -> list[Any]:
        """What constraints call the columns that are completed: by name, or by position in an array."""
        if hasattr(self, "feature_names_in_"):
            return list(self._names)
        return list(range(self.n_features_in_)) if self._features is None else self._features.rest.tolist()

    def _read(self, X: Any, *, reset: bool) -> EncodedTable:  # noqa: N803
        """Check a table, and return what is completed of it as numbers; `reset` learns its columns and categories."""
        given = self._without_features(X, reset=reset)
        if hasattr(X, "columns") and not reset:  # other names, or another order, before any cell is read
            validate_data(self, X, reset=False, skip_check_array=True)
        texts = None if reset else () if self._codes is None else self._codes.categories
        may_have_text = reset or texts or isinstance(self.missing_values, str)
        of_columns = {"missing": self.missing_values, "texts": texts, "truths": self.scale == "columns"}
        mixed = MixedTable.of(given, **of_columns) if may_have_text else None
        if self._features is not None:
            checked = check_array(given, **CHECKS) if mixed is None else None
        elif mixed is None:
            checked = validate_data(self, X, reset=reset, **CHECKS)
        else:
            validate_data(self, X, reset=reset, skip_check_array=True)
        if reset:
            self._codes = self._learn_codes(mixed)
        if mixed is None:
            return EncodedTable(mark_missing(checked, self.missing_values), features=self._features)
        if self._codes is None:
            return EncodedTable(mixed.numbers, features=self._features)
        return EncodedTable(self._codes.encode(mixed), mixed, self._codes, self._features)

    def _without_features(self, X: Any, *, reset: bool) -> Any:  # noqa: N803
        if reset:
            self._features: FeatureColumns | None = None
        dates = list_dates(X) if reset else []
        if not dates and not (self._has_features if reset else self._features):
            return X
        if not hasattr(X, "columns") and not scipy.sparse.issparse(X):
            check_array(X, dtype=None, ensure_all_finite=False)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if reset:
            given = self.feature_columns if self._has_features else ()
            self._features = FeatureColumns.of(_check_feature_names_in(self), given, dates)
            self._warn_of_dates(self._features)
        assert self._features is not None
        return self._features.drop_features(X)

    def _read_features(self, X: Any) -> Features | None:  # noqa: N803
        if self._features is None or not self._has_features:
            return None
        return self._features.read_features(X, missing=self.missing_values)

    def _vectors(self, X: Any) -> FeatureVectors | None:  # noqa: N803
        """Return the features of the rows of a table as the model reads them; None where it reads none."""
        model = self._completer.model if isinstance(self._completer, ByModel) else None
        features, known = self._read_features(X), None if model is None else model.entries_.row_features
        return None if features is None or known is None else features.encode(known.encoding)

    def _learn_codes(self, mixed: MixedTable | None) -> ColumnCodes | None:
        if mixed is None or not mixed.texts:
            return None
        if self.scale != "columns":
            name = self._names[min(mixed.texts)]
            raise BadSetting(f"scale={self.scale!r} is for numbers alone; column {name!r} holds text or categories")
        return ColumnCodes.of(mixed, self._names)

    @property
    def _has_features(self) -> bool:
        given = self.feature_columns
        return not (given is None or (isinstance(given, Sequence) and not given))

    @property
    def _models(self) -> TableModels:
        return TableModels(self.model, self._gather_settings(), self.scale == "columns", self._has_features, self._seed)

    def _gather_settings(self) -> dict[str, Any]:
        given = dict(self.settings or {})
        named = {name: value for name in _PARAMETERS if (value := getattr(self, name)) is not None}
        if "seed" in given:
            raise BadSetting("settings cannot have 'seed', which comes from random_state")
        if twice := given.keys() & named.keys():
            raise BadSetting(f"{min(twice)} is given twice, as a parameter and in settings")
        return given | named

    def _learn(self, candidates: tuple[str, ...], entries: TableEntries, sources: IndexArray) -> None:
        """Choose a model by hidden cells, where there is a choice, and fit it to all."""
        self._matrix(entries)  # refuses what is off a scale that was given by its place in this table
        self.model_, self.weights_, self.chosen_model_, self.hidden_errors_ = None, {"means": 1.0}, "means", {}
        self.score_ = None
        self._completer: Completer | None = None
        self._residuals: Residuals | None = None
        self._draws: Draws | None = None
        self._seen = seen = self.units_.standardise(entries)
        if min(np.unique(seen.rows).size, self._known.size) < 2:
            return
        with show_fits(None if self.verbose is None else bool(self.verbose)) as show:
            fit = partial(self._fit_candidate, sources)
            choosing = partial(choose, candidates, seen, sources, fit, units=self.units_, seed=self._seed)
            choice = ModelChoice(candidates[0], {})
            if candidates == (AUTO,):
                best = fit_blend(seen, sources, self.units_, seed=self._seed, **self._ways, show=show)
                self.weights_, choice = best.weights, ModelChoice(AUTO, best.errors, best.residuals)
                self._completer = best.completer
            else:
                if len(candidates) > 1:
                    choice = choosing(show=show)
                self.weights_, self._completer = {choice.name: 1.0}, fit(choice.name, seen)
        self.chosen_model_ = next(iter(self.weights_))
        self.model_ = self._completer.model if isinstance(self._completer, ByModel) else self._completer
        # A distribution is learned over all columns together: of columns that differ, it would say the same.
        own = self.scale != "columns" and self._completer.gives_distribution
        if self.sample and not own and choice.residuals is None:
            choice = choosing()
        self.hidden_errors_, self._residuals = dict(choice.errors), None if own else choice.residuals
        shares = self._are_shares
        if choice.residuals is not None:
            spreads = np.where(shares, np.nan, self.units_.spreads)
            places = np.searchsorted(self._kept, sources)
            self.score_ = score_residuals(choice.residuals, places, self._names[self._kept], spreads)
        if isinstance(self.model_, BayesianMF):
            self._draws = FactorDraws(self.model_, self.units_, shares)
        elif not self._has_features and self._known.size <= MOST_COLUMNS:
            categories = tuple(np.flatnonzero(shares & (sources == source)) for source in np.unique(sources[shares]))
            self._draws = JointDraws.of(entries, self._completer, categories, seed=self._seed)

    @property
    def _ways(self) -> dict[str, str]:
        for name, known in (("metric", METRICS), ("effort", EFFORTS)):
            if getattr(self, name) not in known:
                raise BadSetting(f"{name} must be {', '.join(map(repr, known))}; got {getattr(self, name)!r}")
        return {"metric": self.metric, "effort": self.effort}

    def _fit_candidate(self, sources: IndexArray, name: str, seen: TableEntries) -> Completer:
        if name in WHOLE_ROWS:
            return fit_whole_rows(name, seen, sources, seed=self._seed, **self._ways)
        matrix = seen.matrix(self.units_.scale, column_labels=self._labels)
        progress = None if self.verbose is None else bool(self.verbose)  # scikit-learn's own also take 0 and 1
        return ByModel(self._models.make_model(name).fit(matrix, row_features=self._row_features, progress=progress))

    def _filler(self, random: np.random.Generator | None, coverage: float | None) -> Filler:
        return Filler(
            self._completer,
            self.units_,
            self._seen,
            to_levels=self.answers == "levels",
            residuals=self._residuals,
            shares=self._are_shares,
            random=random,
            coverage=coverage,
        )

    @property
    def _are_shares(self) -> MaskArray:
        """Of each column that the model sees, whether it is the share of a category."""
        return np.zeros(self._known.size, bool) if self._codes is None else self._codes.are_shares[self._known]

    @property
    def _labels(self) -> npt.NDArray[Any]:
        names = self._names if self._codes is None else np.array(self._codes.names(self._names), dtype=object)
        labels: npt.NDArray[Any] = names[self._known]
        return labels

    def _units(self, entries: TableEntries, *, reach: float) -> ColumnUnits:
        if self.answers not in ("values", "levels"):
            raise BadSetting(f"answers must be 'values' or 'levels'; got {self.answers!r}")
        if isinstance(self.scale, Scale):
            return ColumnUnits.from_shared_scale(entries, self.scale)
        if self.scale not in ("columns", "shared"):
            raise BadSetting(f"scale must be 'columns', 'shared' or a Scale; got {self.scale!r}")
        return (
            ColumnUnits.from_columns(entries, reach=reach)
            if self.scale == "columns"
            else ColumnUnits.from_shared_scale(entries, None)
        )

    def _matrix(self, entries: TableEntries) -> ObservedMatrix:
        """Return entries as the model sees them; only a scale that was given refuses what it does not hold."""
        seen = entries if isinstance(self.scale, Scale) else self.units_.standardise(entries)
        return seen.matrix(self.units_.scale, column_labels=self._labels)

    def _warn_of_width(self, candidates: tuple[str, ...]) -> None:
        if "gaussian" in self.left_out_:
            warn(
                f"the table has {self._known.size} columns (a category is one), so model='auto' chooses from "
                f"{', '.join(candidates)} alone; model='gaussian' takes longer, and may predict better"
            )

    def _warn_of_codes(self, entries: TableEntries) -> None:
        """Warn of nines, such as -99, that lie far from all other values of their column."""
        for column in range(self._known.size) if self.scale == "columns" else ():
            values = entries.values[entries.columns == column]
            for code in (values.min(), values.max()):
                others = values[values != code]
                nines = set(f"{abs(code):g}") == {"9"} and abs(code) > 9
                if nines and 0 < others.size < values.size - 1 and is_far(code, others):
                    warn(
                        f"{values.size - others.size} values of column {self._labels[column]!r} are {code:g}, and all "
                        f"others lie between {others.min():g} and {others.max():g}; if {code:g} stands for a missing "
                        "value, say so by missing_values"
                    )

    def _warn_of_dates(self, columns: FeatureColumns) -> None:
        if columns.dates.size:
            names = columns.names[columns.dates].tolist()
            warn(
                f"columns of dates are returned as they are: {', '.join(map(repr, names))}; feature_columns={names!r} "
                "uses them to predict the others"
            )

    def _warn_of_empty_columns(self) -> None:
        empty = np.delete(self._names, self._kept).tolist()
        if empty and not self.keep_empty_features:
            shown = ", ".join(map(repr, empty[:3])) + (", ..." if len(empty) > 3 else "")
            warn(
                f"left out {format_quantity(len(empty), 'column')} without any entry ({shown}); "
                "keep_empty_features=True keeps them",
                NothingObserved,
            )
