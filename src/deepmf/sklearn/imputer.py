"""The imputer: a scikit-learn transformer that completes tables by any model that extends to new
rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import (
    _check_feature_names_in,
    _num_samples,
    check_is_fitted,
    validate_data,
)

from deepmf.errors import BadEntries, BadSetting, NothingObserved, check_choice, check_count, warn
from deepmf.formatting import format_quantity
from deepmf.matrix.arrays import Array, FloatArray, IndexArray
from deepmf.matrix.axis_entries import Axis
from deepmf.matrix.extras import check_weights
from deepmf.matrix.frames import is_far
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.base import Model
from deepmf.recommend.ranking import batches
from deepmf.scoring.distribution import Interval, check_coverage
from deepmf.sklearn.blend import (
    EFFORTS,
    METRICS,
    MOST_COLUMNS,
    WHOLE_ROWS,
    Choice,
    Residuals,
    fit_blend,
    fit_whole_rows,
)
from deepmf.sklearn.candidates import (
    AUTO,
    NEIGHBOURS,
    check_model,
    choose,
    list_candidates,
    make_model,
)
from deepmf.sklearn.completers import ByMeans, ByModel, ByNeighbours, Completer
from deepmf.sklearn.constraints import keep_constraints, read_constraints
from deepmf.sklearn.draws import JointDraws
from deepmf.sklearn.order import (
    COLUMN_ORDER,
    ORDER,
    Ordered,
    add_positions,
    check_positions,
    make_features,
)
from deepmf.sklearn.scores import HiddenScore, score_residuals
from deepmf.sklearn.table import (
    CHECKS,
    REACH,
    WIDE_REACH,
    ColumnCodes,
    ColumnUnits,
    MixedTable,
    TableEntries,
    build_table,
    label_like,
    make_dense,
    mark_missing,
    split_by_column,
)
from deepmf.training.progress import show_fits

# Settings that are parameters of the imputer, so that a search can vary them by name.
_PARAMETERS = ("hidden_sizes", "latent_size", "dropout", "epochs", "learning_rate")


class DMFImputer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fill in the missing values of a table: an array with NaN, a pandas or polars frame, or a
    scipy sparse matrix.

    Observed entries are returned unchanged. Every row is completed as a new row (area II: extension
    without training), including the rows of `fit`, so that its completion depends on that row
    alone. A row without entries gets the means of the columns, and so does every row if `fit` saw
    fewer than two rows or two columns with entries. Predictions stay within the range of the column
    in `fit`.

    Columns of text, categories and truth values are filled with their own categories. A frame is
    returned as a frame of the same column types, in which whole numbers stay whole and dates as
    they are, and an array of objects as an array of objects.

    Parameters
    ----------
    model
        "auto" blends a Gaussian of the rows with trees, with the weights that best predict the
        cells of each column when these are left out. Of more than 500 columns, it chooses between
        the Gaussian and "neighbours", ridge regressions of each column on those that are most
        correlated with it; among these, means and als where covariances take long to learn. For a
        shared scale, and for wide tables with categories or few observed cells, it chooses among
        means, als and dmf-o. Or a name: "gaussian", "trees", "als", "dmf-o", or any model that can
        predict for new rows.
    metric
        The error of "auto" and "trees" that should be small: "rmse"; "mae", which predicts medians;
        or "both", which predicts the mean of the two.
    effort
        "normal", or "best" for larger forests in about five times the time.
    hidden_sizes, latent_size, dropout, epochs, learning_rate
        Settings of a model that is named; None chooses them for a table.
    settings
        Further settings of the model, by name.
    constraints
        Of imputed values, by the name of a column (its position in an array): `(low, high)` with
        None for no end, "whole" for whole numbers, a function of the completed table for a column
        that follows from others, such as a ratio, or a list of these.
    missing_values
        Mark of missing values beside NaN and None, such as -1 or "?".
    add_indicator
        Whether to append an indicator column for each column with missing values in `fit`.
    scale
        "columns" (each column has its own units and is standardised), "shared" (all columns have
        the same units, such as stars or Likert points), or the shared `Scale`.
    answers
        "values", also fractions in float columns of whole numbers; or "levels": the nearest level
        in columns whose values repeat, and the nearest whole number in columns of whole numbers.
    keep_empty_features
        Whether to keep a column without entries in `fit`, filled with 0, or to leave it out with a
        warning.
    order
        Positions of the rows of `fit`, numbers or dates along which neighbours are alike: "auto"
        also reads the rows before and after where the index of a frame is a `DatetimeIndex`; None
        never does. Rows in time are completed by smooth factors as far as that lowers the error of
        hidden cells, and so are rows without entries.
    column_order
        Positions of the columns, such as those along a genome.
    random_state
        None, a seed or a `numpy.random.RandomState`.
    verbose
        Whether `fit` shows its progress on standard error; None: on a terminal and in notebooks.

    Attributes
    ----------
    model_
        The fitted model or blend; None where there was too little to learn from.
    weights_, chosen_model_
        Mean weight of each candidate in the blend, and the name of the candidate with the largest
        weight.
    hidden_errors_
        Error of each model that "auto" chose from on cells that were hidden, in standard deviations
        or in the units of a shared scale; empty for a blend.
    score_
        Score on the cells hidden in `fit`, overall and of each column, with standard errors
        (`HiddenScore`); None where no cells were hidden, because a single model was asked for by
        name.
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

    # What a call of transform asks for is for the caller alone: a pipeline has none of it to hand
    # on.
    __metadata_request__transform: ClassVar[dict[str, str]] = {
        "return_interval": UNUSED,
        "coverage": UNUSED,
        "order": UNUSED,
    }

    model_: Model | Completer | None
    units_: ColumnUnits
    known_columns_: npt.NDArray[np.intp]
    chosen_model_: str
    weights_: dict[str, float]
    hidden_errors_: dict[str, float]
    score_: HiddenScore | None
    _codes: ColumnCodes
    _column_index: Any  # of a frame whose columns have several levels, else None

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
        constraints: Mapping[Any, Any] | None = None,
        missing_values: Any = np.nan,
        add_indicator: bool = False,
        scale: str | Scale = "columns",
        answers: str = "values",
        keep_empty_features: bool = False,
        order: Any = AUTO,
        column_order: Any = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | None = None,
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
        self.constraints = constraints
        self.missing_values = missing_values
        self.add_indicator = add_indicator
        self.scale = scale
        self.answers = answers
        self.keep_empty_features = keep_empty_features
        self.order = order
        self.column_order = column_order
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803 (scikit-learn's name)
        """Learn from the observed entries of a table; `y` is not used.

        `sample_weight` is how much each row counts (default: 1): a row of weight 2 counts as the
        row twice, and a row of weight 0 as if it had not been given.
        """
        times = _read_order(X, self.order)
        X, counted_rows, weights = self._read_weights(X, sample_weight)  # noqa: N806
        times = None if times is None else times[counted_rows]
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self._check_parameters()
        table = self._read(X, reset=True)
        entries = TableEntries.of(self._codes.encode(table))
        entries = entries._replace(row_weights=weights, times=times)
        column_positions = None
        if self.column_order is not None:
            column_positions = check_positions(
                self.column_order, self.n_features_in_, name=COLUMN_ORDER
            )
        for name, positions in ((ORDER, times), (COLUMN_ORDER, column_positions)):
            if positions is not None:
                make_features(positions, name).learn_encoding()
        if entries.values.size == 0:
            raise BadEntries(
                f"the table of {entries.shape[0]} x {entries.shape[1]} has no observed entry to learn from"
            )
        self._known = np.unique(entries.columns)
        self.known_columns_ = np.unique(self._codes.sources[self._known]).astype(np.intp)
        self._indicated = (
            np.flatnonzero(table.missing.any(axis=0))
            if self.add_indicator
            else np.empty(0, np.intp)
        )
        labels: Any = range(self.n_features_in_)
        if self._column_index is not None:
            labels = self._column_index
        elif hasattr(self, "feature_names_in_"):
            labels = self._codes.names
        not_numbers = {*self._codes.categories, *self._codes.dates}
        places = {labels[at]: at for at in self._output_columns.tolist() if at not in not_numbers}
        self._constraints = read_constraints(self.constraints or {}, places)
        self._warn_of_columns()
        entries = entries.take_columns(self._known)
        self._warn_of_codes(entries)
        sources = self._codes.sources[self._known]
        if column_positions is not None:
            column_positions = column_positions[sources]
        self._learn(entries, sources, column_positions)
        return self

    @staticmethod
    def _read_weights(X: Any, sample_weight: Any) -> tuple[Any, Any, FloatArray]:  # noqa: N803
        """Return the rows of a table that count, where these are, and their weights."""
        X = make_dense(X)  # noqa: N806
        if sample_weight is None:
            return X, slice(None), np.ones(_num_samples(X))
        weights = check_weights(np.asarray(sample_weight), _num_samples(X), of="row")
        counted_rows = np.flatnonzero(weights)
        if counted_rows.size == 0:
            raise BadEntries("every sample_weight is zero, so there is nothing to learn from")
        if counted_rows.size < weights.size:
            X = _safe_indexing(X, counted_rows)  # noqa: N806
        return X, counted_rows, weights[counted_rows]

    def transform(
        self,
        X: Any,  # noqa: N803
        *,
        return_interval: bool = False,
        coverage: float = 0.9,
        order: Any = AUTO,
    ) -> Any:
        """Return a table with every missing entry filled in.

        With `return_interval`, a pair: the table, and an `Interval` of two arrays (rows, columns),
        or frames for a frame, between which the missing values lie with about this probability;
        both are the value itself where that is observed, and NaN in columns of text and categories.

        `order` has the positions of these rows; "auto": their `DatetimeIndex`, or the positions of
        as many rows of `fit`.
        """
        check_is_fitted(self)
        check_coverage(coverage)
        times = _read_order(X, self._match_order(X, order))
        X = make_dense(X)  # noqa: N806
        table = self._read(X, reset=False)
        cells = self._encode(table)
        ends = self._fill(cells, times, coverage * return_interval)
        completed = self._build(X, table, cells)
        if not return_interval:
            return completed
        return completed, Interval(*(self._label_end(X, table, end) for end in ends))

    def impute_many(
        self,
        X: Any,  # noqa: N803
        m: int = 20,
        *,
        seed: int = 0,
        order: Any = AUTO,
    ) -> Iterator[Any]:
        """Yield `m` completed tables for multiple imputation, frames for a frame.

        Each table is a draw from a posterior: parameters are drawn first, then the missing cells,
        those of a row together. Rows in time are drawn by smooth factors in columns that these
        complete. Analyse every table, and combine the estimates by `pool`.

        Parameters
        ----------
        X
            The table to complete, usually that of `fit`.
        m
            Number of completed tables.
        seed
            The same seed gives the same tables.
        order
            As in `transform`.

        >>> random = np.random.default_rng(0)
        >>> x = random.normal(size=300)
        >>> table = np.column_stack([x, x + random.normal(size=300)])
        >>> table[random.random(300) < 0.3, 1] = np.nan
        >>> means = [each[:, 1].mean() for each in DMFImputer(random_state=0).fit(table).impute_many(table, m=3)]
        >>> len(set(means))
        3
        """
        check_is_fitted(self)
        check_count("m", m)
        times = _read_order(X, self._match_order(X, order))
        X = make_dense(X)  # noqa: N806
        table = self._read(X, reset=False)
        cells, streams = self._encode(table), np.random.SeedSequence(seed).spawn(int(m))
        smooth = self._draw_smooth(cells, times, seed)
        draws = (
            self._draw(cells, next(smooth), np.random.default_rng(stream)) for stream in streams
        )
        return (self._build(X, table, completed) for completed in draws)

    def trace_means(self, *, chains: int = 4, seed: int = 0) -> dict[str, FloatArray] | None:
        """Return the means of each column (chains, steps) along the chains that draws start with.

        Means are in standard deviations. None where the table has too many columns to draw from.
        """
        check_is_fitted(self)
        if self._draws is None:
            return None
        streams = np.random.SeedSequence(seed).spawn(chains)
        traces = [
            [gaussian.means for gaussian in self._draws.run_chain(np.random.default_rng(stream))]
            for stream in streams
        ]
        labels = map(str, self._codes.labels[self._known])
        return dict(zip(labels, np.transpose(traces, (2, 0, 1)), strict=True))

    def _encode(self, table: MixedTable) -> npt.NDArray[Any]:
        """Return the cells (rows, columns) of the columns that had entries in `fit`."""
        cells = self._codes.encode(table)[:, self._known]
        if isinstance(self.scale, Scale):
            # refuses what is off the scale by its place in this table
            self._matrix(TableEntries.of(cells))
        return cells

    def _build(self, X: Any, table: MixedTable, cells: npt.NDArray[Any]) -> Any:  # noqa: N803
        """Return a table that was read with completed cells, which keep their constraints."""
        numbers = self._codes.encode(table)
        numbers[:, self._known] = cells
        numbers[np.isnan(numbers)] = 0.0  # of columns without entries
        positions, missing = self._output_columns, table.missing
        columns = self._codes.decode(numbers, table)
        indicators = {self._name_indicator(at): missing[:, at] for at in self._indicated.tolist()}

        def build() -> Any:
            filled = {at: columns.get(at) for at in positions.tolist()}
            return build_table(X, filled, missing, indicators)

        keep_constraints(columns, missing, self._constraints, build)
        return build()

    def _label_end(self, X: Any, table: MixedTable, end: FloatArray) -> Any:  # noqa: N803
        """Return the ends of intervals like a table; NaN in columns of text and categories."""
        sources = self._codes.sources[self._known]
        are_numbers = ~np.isin(sources, list(self._codes.categories))
        cells = np.full(table.numbers.shape, np.nan)
        cells[:, sources[are_numbers]] = end[:, are_numbers]
        return label_like(X, cells[:, self._output_columns], self._output_columns)

    def _name_indicator(self, at: int) -> Any:
        """Return the name of the column that says where a column was missing."""
        if self._column_index is None:
            return f"missingindicator_{self._codes.names[at]}"
        first, *levels = self._column_index[at]
        return (f"missingindicator_{first}", *levels)

    def _draw_smooth(
        self, cells: npt.NDArray[Any], times: Array | None, seed: int
    ) -> Iterator[npt.NDArray[Any]]:
        """Yield rows in which the cells of numbers that smooth factors of time complete are drawn;
        the same rows where there are none."""
        completer = self._completer
        while isinstance(completer, Ordered) and completer.smooth.encoding is None:
            completer = completer.completer  # beside factors that are smooth along columns
        if times is None or self._draws is None or not isinstance(completer, Ordered):
            yield from itertools.repeat(cells)
            return
        entries, draws = TableEntries.of(cells, times), self._draws
        are_shares = self._codes.are_shares[self._known]
        for drawn in completer.draw(draws.entries, entries, draws.units, seed=seed):
            yield np.where(are_shares, cells, drawn)

    def _draw(
        self, cells: npt.NDArray[Any], smooth: npt.NDArray[Any], random: np.random.Generator
    ) -> FloatArray:
        """Return rows with drawn cells in place of NaN, some of which are drawn before; these have
        legal levels if levels are wanted or shared."""
        if self._draws is None:
            raise BadSetting(
                f"missing cells are drawn together in tables of at most {MOST_COLUMNS} columns, and this one has more; "
                "BayesianMF(...).fit(matrix).draw(rows, columns) draws cells of wider matrices"
            )
        completed = self._draws.draw(smooth, random) if np.isnan(smooth).any() else smooth
        if self.answers == "levels" or self.units_.scale.levels is not None:
            rows, columns = np.nonzero(np.isnan(cells))
            completed[rows, columns] = self.units_.round_to_levels(
                completed[rows, columns], columns
            )
        return completed

    def _match_order(self, X: Any, order: Any) -> Any:  # noqa: N803
        """Return the order of the rows of a table: a given one, or that of the rows of `fit`."""
        if not (isinstance(order, str) and order == AUTO):
            return order
        if self.order is not None and not isinstance(self.order, str):
            n_rows, n_known = _num_samples(X), len(self.order)
            if n_rows != n_known:
                raise BadEntries(
                    f"order has positions of the {n_known} rows of fit, and this table has {n_rows} rows; "
                    "give their positions as transform(order=)"
                )
        return self.order

    def _fill(self, table: npt.NDArray[Any], times: Array | None, coverage: float) -> FloatArray:
        """Fill in rows (rows, columns) in place; return the ends of intervals (2, rows, columns),
        or no ends (0, rows, columns) without a coverage."""
        ends = np.repeat(table[None].astype(np.float64), 2 * bool(coverage), axis=0)
        for batch in batches(np.arange(len(table)), width=table.shape[1]):
            rows, columns = np.nonzero(np.isnan(table[batch]))
            entries = TableEntries.of(table[batch], None if times is None else times[batch])
            units, unit_ends = self._predict(entries, rows, columns, coverage)
            values = self.units_.convert_values(units, columns)
            if self.answers == "levels":
                values = self.units_.round_to_levels(values, columns)
            table[batch[rows], columns] = values
            if coverage:
                ends[:, batch[rows], columns] = [
                    self.units_.convert_values(end, columns) for end in unit_ends
                ]
        return ends

    def _predict(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray, coverage: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return predictions (cells,) of cells, and the ends of intervals (2, cells), in the units
        of the model.

        Where nothing is known of a row, they are the mean of the column and quantiles of its
        values.
        """
        units = self.units_
        tails = [(1.0 - coverage) / 2.0, (1.0 + coverage) / 2.0]
        predictions, ends = units.convert(units.means)[columns], np.zeros((2, columns.size))
        read_rows = np.empty(0, np.intp)
        if self.model_ is not None:
            read_rows = self._completer.list_rows(entries)
        is_known = np.isin(rows, read_rows)
        for column in np.unique(columns[~is_known]) if coverage else ():
            ends[:, columns == column] = np.quantile(
                self._standardised.values[self._standardised.columns == column], tails
            )[:, None]
        if not is_known.any():
            return predictions, ends
        entries = units.standardise(entries.take_rows(read_rows))
        cells = np.searchsorted(read_rows, rows[is_known]), columns[is_known]
        predictions[is_known] = self._completer.predict(entries, *cells)
        if coverage and self._residuals:
            offsets = np.stack([self._residuals.quantiles(cells[1], tail) for tail in tails])
            if isinstance(self._completer, Ordered):
                offsets *= self._completer.find_spreads(entries, *cells)
            ends[:, is_known] = predictions[is_known] + offsets
        elif coverage and isinstance(self.model_, Model) and self.model_.gives_distribution:
            distribution = self._completer.fold_in(entries).predictor.distribution(*cells)
            ends[:, is_known] = distribution.ends(coverage, units.scale).T
        elif coverage:
            raise BadSetting(
                f"{type(self.model_).__name__} predicts a value, not a distribution, so there are no intervals; "
                "model='auto' and model='dmf-o' give them"
            )
        return predictions, ends

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the columns that `transform` gives; a `MultiIndex` of a frame that has
        one."""
        check_is_fitted(self)
        names: Any = _check_feature_names_in(self, input_features)
        indicators = [self._name_indicator(at) for at in self._indicated.tolist()]
        if self._column_index is not None:
            labels = [*self._column_index[self._output_columns], *indicators]
            return type(self._column_index).from_tuples(labels, names=self._column_index.names)
        return np.array([*names[self._output_columns], *indicators], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _output_columns(self) -> IndexArray:
        """The positions of the columns that `transform` gives."""
        if self.keep_empty_features:
            return np.arange(self.n_features_in_)
        return np.union1d(self.known_columns_, list(self._codes.dates)).astype(np.int64)

    def _read(self, X: Any, *, reset: bool) -> MixedTable:  # noqa: N803
        """Check a table and take it apart; `reset` learns its columns and categories."""
        texts = None if reset else self._codes.categories.keys()
        # other columns, or another order, before any cell is read
        if not reset and (texts or hasattr(X, "columns")):
            validate_data(self, X, reset=False, skip_check_array=True)
        table = MixedTable.of(
            X, missing=self.missing_values, texts=texts, truths=self.scale == "columns"
        )
        if table is None:
            checked = validate_data(self, X, reset=reset, **CHECKS)
            table = MixedTable(mark_missing(checked, self.missing_values), {}, {})
        else:
            validate_data(self, X, reset=reset, skip_check_array=True)
        if reset:
            labels = getattr(X, "columns", None)
            self._column_index = labels if getattr(labels, "nlevels", 1) > 1 else None
            names = _check_feature_names_in(self)
            if self._column_index is not None:
                names = [str(label) for label in self._column_index]
            self._codes = ColumnCodes.of(table, names)
            if table.texts and self.scale != "columns":
                name = self._codes.names[min(table.texts)]
                raise BadSetting(
                    f"scale={self.scale!r} is for numbers alone; column {name!r} holds text or categories"
                )
        if new := table.dates - self._codes.dates:
            raise BadEntries(
                f"column {self._codes.names[min(new)]!r} holds dates, which it did not in fit"
            )
        return table

    def _check_parameters(self) -> None:
        check_model(self.model, self._gather_settings(), own_units=self.scale == "columns")
        check_choice("metric", self.metric, METRICS)
        check_choice("effort", self.effort, EFFORTS)
        check_choice("answers", self.answers, ["values", "levels"])
        is_ordered = self.order is not None and not isinstance(self.order, str)
        if self.model != AUTO and (is_ordered or self.column_order is not None):
            raise BadSetting(f"order is for model='auto'; model={self.model!r} reads none")
        if not isinstance(self.scale, Scale):
            check_choice("scale", self.scale, ["columns", "shared"])

    def _gather_settings(self) -> dict[str, Any]:
        settings = dict(self.settings or {})
        named = {name: value for name in _PARAMETERS if (value := getattr(self, name)) is not None}
        if "seed" in settings:
            raise BadSetting("settings cannot have 'seed', which comes from random_state")
        if twice := settings.keys() & named.keys():
            raise BadSetting(f"{min(twice)} is given twice, as a parameter and in settings")
        return settings | named

    def _learn(
        self, entries: TableEntries, sources: IndexArray, column_positions: Array | None
    ) -> None:
        """Choose a model by hidden cells, where there is a choice, and fit it to all."""
        own_units = self.scale == "columns"
        candidates = list_candidates(self.model, entries, sources, own_units=own_units)
        self.units_ = self._find_units(entries, candidates)
        # refuses what is off a scale that was given by its place in this table
        self._matrix(entries)
        self._standardised = self.units_.standardise(entries)
        choice = Choice(ByMeans(np.zeros(self._known.size)), {"means": 1.0})
        is_enough = min(np.unique(self._standardised.rows).size, self._known.size) > 1
        if is_enough:
            choice = self._choose(candidates, sources)
        completer = choice.completer  # of draws, which read no order
        if is_enough and self.model == AUTO:
            orders: dict[Axis, Any] = {"row": entries.times, "column": column_positions}
            for axis, positions in orders.items():
                choice = add_positions(
                    choice, self._standardised, axis, positions, self.units_, seed=self._seed
                )
        self._completer: Any = choice.completer
        self.weights_, self.hidden_errors_ = choice.weights, dict(choice.errors)
        self.chosen_model_ = next(iter(self.weights_))
        model = self._completer.model if isinstance(self._completer, ByModel) else self._completer
        self.model_ = model if is_enough else None
        # A distribution is learned over all columns together: of columns that differ, it would say
        # the same.
        has_own = not own_units and isinstance(model, Model) and model.gives_distribution
        self._residuals: Residuals | None = None if has_own else choice.residuals
        self._prepare_draws(entries, sources, completer)
        self.score_ = None
        if choice.residuals:
            shares = self._codes.are_shares[self._known]
            spreads = np.where(shares, np.nan, self.units_.spreads)
            places = np.searchsorted(self.known_columns_, sources)
            names = self._codes.names[self.known_columns_]
            self.score_ = score_residuals(choice.residuals, places, names, spreads)

    def _find_units(self, entries: TableEntries, candidates: tuple[str, ...]) -> ColumnUnits:
        """Return the units that models see: of each column, or of a scale that all share."""
        if self.scale == "columns":
            reach = WIDE_REACH if candidates[0] in (AUTO, *WHOLE_ROWS) else REACH
            return ColumnUnits.from_columns(entries, reach=reach)
        scale = self.scale if isinstance(self.scale, Scale) else None
        return ColumnUnits.from_shared_scale(entries, scale)

    def _choose(self, candidates: tuple[str, ...], sources: IndexArray) -> Choice:
        """Return the candidate, or the blend, that completes hidden cells best, fitted to all."""
        standardised, fit = self._standardised, partial(self._fit_candidate, sources)
        if len(candidates) == 1 and candidates[0] != AUTO:
            (name,) = candidates
            return Choice(fit(name, standardised), {name: 1.0})
        with show_fits(None if self.verbose is None else bool(self.verbose)) as show:
            options: dict[str, Any] = {"units": self.units_, "seed": self._seed, "show": show}
            if candidates[0] != AUTO:
                return choose(candidates, standardised, sources, fit, **options)
            options |= {"metric": self.metric, "effort": self.effort}
            return fit_blend(standardised, sources, **options)

    def _prepare_draws(
        self, entries: TableEntries, sources: IndexArray, completer: Completer
    ) -> None:
        """Prepare to draw the cells of a row together, where there are few columns."""
        shares = self._codes.are_shares[self._known]
        cells = tuple(
            np.flatnonzero(shares & (sources == source)) for source in np.unique(sources[shares])
        )
        self._draws: JointDraws | None = None
        if self._known.size <= MOST_COLUMNS:
            self._draws = JointDraws.of(entries, completer, cells, seed=self._seed)

    def _fit_candidate(self, sources: IndexArray, name: str, seen: TableEntries) -> Completer:
        if name in WHOLE_ROWS:
            return fit_whole_rows(
                name, seen, sources, seed=self._seed, metric=self.metric, effort=self.effort
            )
        if name == NEIGHBOURS:
            neighbours = ByNeighbours.fit(seen.to_array(), seed=self._seed)
            return neighbours or ByMeans(np.zeros(self._known.size))
        matrix = seen.matrix(self.units_.scale, column_labels=self._codes.labels[self._known])
        # scikit-learn's own also take 0 and 1
        progress = None if self.verbose is None else bool(self.verbose)
        model = make_model(name, self._gather_settings(), seed=self._seed)
        return ByModel(model.fit(matrix, progress=progress))

    def _matrix(self, entries: TableEntries) -> ObservedMatrix:
        """Return entries as the model sees them; only a scale that was given refuses what it does
        not hold."""
        if not isinstance(self.scale, Scale):
            entries = self.units_.standardise(entries)
        return entries.matrix(self.units_.scale, column_labels=self._codes.labels[self._known])

    def _warn_of_columns(self) -> None:
        """Warn of columns that are not completed: those of dates, and those without entries."""
        names, dates = self._codes.names, sorted(self._codes.dates)
        if dates:
            warn(f"columns of dates are returned as they are: {', '.join(map(repr, names[dates]))}")
        empty = np.delete(names, self._output_columns).tolist()
        if empty:
            shown = ", ".join(map(repr, empty[:3])) + (", ..." if len(empty) > 3 else "")
            warn(
                f"left out {format_quantity(len(empty), 'column')} without any entry ({shown}); "
                "keep_empty_features=True keeps them",
                NothingObserved,
            )

    def _warn_of_codes(self, entries: TableEntries) -> None:
        """Warn of nines, such as -99, that lie far from all other values of their column."""
        if self.scale != "columns":
            return
        labels = self._codes.labels[self._known]
        places_of_columns = split_by_column(entries.columns, labels.size)
        for label, places in zip(labels, places_of_columns, strict=True):
            values = entries.values[places]
            for code in (values.min(), values.max()):
                if abs(code) <= 9 or set(f"{abs(code):g}") != {"9"}:
                    continue
                other_values = values[values != code]
                n_codes = values.size - other_values.size
                if other_values.size > 0 and n_codes > 1 and is_far(code, other_values):
                    warn(
                        f"{n_codes} values of column {label!r} are {code:g}, and all others lie "
                        f"between {other_values.min():g} and {other_values.max():g}; if {code:g} stands for a "
                        "missing value, say so by missing_values"
                    )


def _read_order(X: Any, order: Any) -> Array | None:  # noqa: N803
    """Return the positions of the rows of a table; None without any."""
    if order is None:
        return None
    if not isinstance(order, str):
        return check_positions(order, _num_samples(X), name=ORDER)
    check_choice("order", order, [AUTO])
    index: Any = getattr(X, "index", None)
    if type(index).__name__ != "DatetimeIndex" or index.hasnans or index.nunique() < 2:
        return None
    return np.asarray(index.tz_localize(None).values)
