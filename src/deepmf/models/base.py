"""The base class of every model: what users call, and the few methods that a new model defines."""

from __future__ import annotations

import copy
import inspect
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadModelFile, BadSetting, Hint, NotFitted, TrainingDiverged
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING, PlacedEntries
from deepmf.matrix.entries import EntryStore, Pairs, forget, plan_forget, weigh_by_age
from deepmf.matrix.extras import parse_time, parse_times, weigh_new
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.matrix.names import GivenNames, take_names_from
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.distribution import Interval, PredictiveDistribution, check_coverage
from deepmf.models.drift import Drift, DriftAt, learn_drift, sample_places
from deepmf.models.fitting import (
    Conflicts,
    Fitting,
    check_extension,
    check_matrix,
    check_ranks,
    check_trainable,
    check_weighted,
    drop_chosen_settings,
    fill_settings,
    gather_entries,
    identify_training,
    read_choice,
    removing_checkpoint,
    report_ending,
    to_matrix,
    warn_of_constant_times,
    warn_of_nothing,
)
from deepmf.models.interactions import (
    InteractionPredictor,
    check_has_values,
    find_similar_columns,
    find_similar_rows,
)
from deepmf.models.pairs import Axis, Fallback, LabelPairs, PredictedAreas, Unknown, find_pairs
from deepmf.models.predictor import Predictor, check_levels
from deepmf.models.presence import Presence
from deepmf.models.ranking import (
    FRAME_FIELDS,
    ColumnFilter,
    ColumnNeighbours,
    Ranking,
    Recommendations,
    check_neighbours,
    choose_columns,
    is_label,
    most_similar,
    rank_columns,
)
from deepmf.models.recency import Recency, learn_recency
from deepmf.models.relevance import RankBy, Ranker, Rankers, choose_order, fit_presence
from deepmf.models.reranking import Rerank, make_reranker
from deepmf.storage.features import pack_features, unpack_features
from deepmf.storage.matrices import pack_mapped_matrix, pack_matrix, pack_names, unpack_any_matrix, unpack_names
from deepmf.storage.model_file import (
    Packed,
    Tensors,
    has_values_to_check,
    read_field,
    read_numbers,
    refuse_stored,
    write_file,
)
from deepmf.storage.model_folder import LARGEST_FILE, goes_to_folder, write_folder
from deepmf.training.history import Callback, History
from deepmf.training.loop import Task, ValidationEntries
from deepmf.training.progress import FitPlan, show_epochs
from deepmf.training.runtime import limit_threads
from deepmf.training.settings import RECOMMENDATION, LoopSettings, Settings

if TYPE_CHECKING:  # imported by the methods that use them: most models are never explained, completed or warm-started
    from deepmf.models.explanation import Explanation
    from deepmf.models.fold_in import FeatureValues, FoldedColumns, FoldedRows
    from deepmf.models.fold_in import History as RowHistory
    from deepmf.models.view import ModelView
    from deepmf.models.warm_start import WarmStart

Missing = Literal["error", "ignore"]


@dataclass(frozen=True)
class Fitted:
    """The state of a fitted model: the entries it knows, its predictor, its presence part, drift and recency.

    rank_by: the order in which it ranks columns by default.
    given: the entries as they were given, where a half-life changes their weights.
    """

    entries: EntryStore
    predictor: Predictor
    presence: Presence | None = None
    rank_by: RankBy = "value"
    drift: Drift | None = None
    recency: Recency | None = None
    given: EntryStore | None = None

    @cached_property
    def rankers(self) -> Rankers:
        """The rankers of columns."""
        return Rankers(self.entries, self.presence, self.rank_by, self.recency, self.drift)

    @cached_property
    def fallback(self) -> Fallback:
        """The means that predict for unknown rows and columns."""
        return Fallback(self.entries)


class Model(ABC):
    """The base class of every model.

    The constructor stores settings, `fit` learns, and names that end in `_` are learned. A model class declares the
    class variables below and defines `_make_task`, `_make_predictor` and `_load_predictor`; everything else is the
    same for all models.
    """

    settings_class: ClassVar[type[Settings]]
    predicts: ClassVar[tuple[str, ...]] = AREAS  # the areas in which the model predicts
    cannot: ClassVar[str] = ""  # the reason why it does not predict in the others
    takes_features: ClassVar[bool] = False  # of rows and columns
    takes_weights: ClassVar[bool] = False  # of entries
    holds_out: ClassVar[bool] = False  # whether `fit` holds out validation entries when none are given
    fits_on_ranks: ClassVar[bool] = False  # whether several processes can fit it together
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Show the settings in the signature of the class, for `help` and editors."""
        super().__init_subclass__(**arguments)
        if hasattr(cls, "settings_class"):
            cls.__signature__ = inspect.signature(cls.settings_class, eval_str=True)

    def __init__(self, /, **settings: Any) -> None:
        self.settings = self.settings_class.from_names(settings)
        self._given = frozenset(
            name for name, value in settings.items() if value != "auto" or name not in RECOMMENDATION
        )
        self.chosen_: dict[str, Any] = {}
        self.history_ = History()
        self._fitted: Fitted | None = None

    def fit(
        self,
        train: ObservedMatrix | Any,
        validation: ObservedMatrix | Any | None = None,
        *,
        row_features: Features | None = None,
        column_features: Features | None = None,
        row_names: GivenNames | None = None,
        column_names: GivenNames | None = None,
        start_from: Model | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 25,
        keep_checkpoint: bool = False,
        progress: bool | None = None,
    ) -> Self:
        """Learn from a matrix.

        Models that can choose settings for the matrix and the machine do so for all settings that were not given;
        `chosen_` lists them. A fit that needs more memory than is free raises `NotEnoughMemory` before it allocates
        any. Ctrl-C ends training early and keeps the best epoch so far.

        Parameters
        ----------
        train : the entries to learn from: a matrix, or a long frame with usual names (user, item, rating).
        validation : entries that are used only for early stopping. With them, `history_` also has the validation error
            of the shrunk means (`Means`), and a model that does not beat it warns (`NotBetterThanMeans`).
        row_features, column_features : features of rows and of columns; some rows and columns may have none. Labels
            that have features but no entries become known rows and columns, as after `extend`. Models that cannot use
            features raise `BadFeatures`.
        row_names, column_names : names that are shown beside ids, as in `with_names`; or the name of one of the
            features, which is then not learned from.
        start_from : a fitted model of the same class, settings and scale (warm start). Weights and factors of labels
            that it knows are taken over, those of new labels start fresh. A warm fit runs half the epochs; a network
            enters its schedule where the learning rate has fallen to half. A scale inferred from the values is that of
            `start_from`. Validation entries that `start_from` was trained on cause a warning.
        callbacks : functions that are called after each epoch with its record and the history.
        checkpoint : a file to which the state of training is saved. A fit that finds a checkpoint of the same training
            continues it to the same result. The file is removed when training is over; an interrupted fit leaves it.
        checkpoint_every : the number of epochs between checkpoints.
        keep_checkpoint : leave the checkpoint at the end, so that the caller can remove it after saving the model.
        progress : show a plan and one line of progress on standard error: always (True), never (False), or in
            terminals and notebooks (None).

        Returns
        -------
        The model itself.

        Notes
        -----
        In a process group of torch.distributed, OrdinalDMF, DMF and DMFD fit one model together: all processes call
        `fit` with the same arguments and end with the same model. The tables of the first layers and the work of each
        step are divided among the processes. Only the first shows progress, and the checkpoint is a folder.
        """
        name, train = type(self).__name__, to_matrix(train)
        check_trainable(train)
        check_weighted(name, train, able=self.takes_weights)
        warn_of_constant_times(train, self.settings)
        validation = to_matrix(validation, train.scale)
        row_features, row_names = take_names_from(row_features, row_names)
        column_features, column_names = take_names_from(column_features, column_names)
        if not train.has_values:
            if start_from is not None or row_features is not None or column_features is not None:
                raise BadSetting(
                    "interactions are learned from their positions alone; leave out start_from and features"
                )
            return self._fit_interactions(train, validation, row_names, column_names)
        if isinstance(start_from, Model) and start_from.is_fitted and not start_from.scale_.is_bounded:
            train = train if train.scale.is_bounded else train.with_scale(start_from.scale_)
        given, train = train, weigh_by_age(train, self._half_life)
        check_ranks(name, train, self.settings, able=self.fits_on_ranks)
        if validation is not None:
            check_matrix(validation, "validation")
        aligned = ValidationEntries.of(train, validation)
        entries = gather_entries(train, row_features, column_features, method=name, takes_features=self.takes_features)
        if isinstance(start_from, Model) and start_from.is_fitted:
            entries = replace(
                entries, row_names=start_from.entries_.row_names, column_names=start_from.entries_.column_names
            )
        entries = entries.with_names(row_names, column_names)
        chosen = self._with_choice(train, start_from)
        chosen._check_memory(entries)
        start = None if start_from is None else chosen._check_start(start_from, entries, aligned)
        path = None if checkpoint is None else Path(checkpoint)
        with (
            removing_checkpoint(
                None if keep_checkpoint else path, is_over=lambda: self.history_.stopped != "interrupted"
            ),
            self._use_settings_of(chosen),
        ):
            plan = self._plan_epochs(train, warm=start is not None)
            epochs = None if plan is None else plan.epochs
            with show_epochs(f"fitting {name}", epochs, progress, plan) as shown:
                self._learn(entries, aligned, Fitting([*shown, *callbacks], path, checkpoint_every, start=start))
            self._keep_given(given)
            if aligned is not None and self.history_.best_error is not None:
                self.history_.means_error = self._measure_means(aligned)
            self._learn_drift(aligned, validation)
            self._learn_presence(aligned)
            self._add_featured_labels(row_features, column_features)
            report_ending(self.history_, self.settings)
        return self

    def plan(self, train: ObservedMatrix, *, start_from: Model | None = None) -> FitPlan | None:
        """Return the plan of `fit` for a matrix; None for a model that is not trained in epochs."""
        return self._with_choice(train, start_from)._plan_epochs(train, warm=start_from is not None)

    def settings_for(self, train: ObservedMatrix) -> Settings:
        """Return the settings that `fit` uses for a matrix: the given ones, and those chosen for it."""
        return self._with_choice(train, None).settings

    @property
    def own_settings(self) -> dict[str, Any]:
        """The settings that no fit chooses: a new model of this class with them is this model before `fit`."""
        return drop_chosen_settings(self.settings, self._given)

    def extend(
        self,
        new: ObservedMatrix | None = None,
        *,
        row_features: Features | None = None,
        column_features: Features | None = None,
        conflicts: Conflicts = "error",
    ) -> Self:
        """Return a model that also covers new rows, columns, entries and features, without training.

        This model stays as it is. A new row is described by its entries over the trained columns, a new column by its
        entries over the trained rows; entries of area IV are never inputs. A row or column without such entries is
        predicted from an empty description, and a `NothingObserved` warning names it. A model that cannot predict for
        new rows or new columns raises `CannotExtend` with the reason.

        Parameters
        ----------
        new : the new entries; None to add only features.
        row_features, column_features : features of new and known labels. Rows and columns may have features only.
            Features of a known row or column replace its old ones.
        conflicts : what happens to an entry that is known with another value: "error" raises `DuplicateEntries`,
            "replace" takes the new value. The weights keep what they learned from the old value until the next fit.
            Counts of interactions add up unless they are replaced.
        """
        fitted = self._require_fitted()
        known = fitted.entries
        check_extension(new, row_features, column_features, conflicts)
        if new is not None:
            check_weighted(type(self).__name__, new, able=self.takes_weights)
        areas = self._areas
        areas.check_extends()
        more: dict[str, Any] = {"row_features": row_features, "column_features": column_features}
        if fitted.given is not None:
            fitted = replace(fitted, given=fitted.given.extend(new, conflicts=conflicts, **more).entries)
            new = new and new.with_extras(weigh_new(new.extras, self._half_life, known.train.extras))
        entries, rows, columns = known.extend(new, conflicts=conflicts, **more)
        areas.check_new("row", known.rows, entries.rows)
        areas.check_new("column", known.columns, entries.columns)
        warn_of_nothing(entries, "row", rows)
        warn_of_nothing(entries, "column", columns)
        return self._encode_again(entries, fitted, rows, columns)

    def forget(
        self,
        rows: Iterable[Any] | None = None,
        columns: Iterable[Any] | None = None,
        entries: Pairs | None = None,
        *,
        row_features: Iterable[Any] | None = None,
        column_features: Iterable[Any] | None = None,
        missing: Missing = "error",
    ) -> Self:
        """Return a model without some rows, columns, entries or features.

        This model stays as it is. Additions by `extend` disappear completely, also from the file that `save` writes; a
        row or column that `extend` added is no longer known. Trained entries disappear from descriptions, rankings and
        completions: a trained row or column stays known and is predicted from its remaining entries. The weights keep
        what they learned, and the training matrix stays in the file, until the next fit without these entries.

        Parameters
        ----------
        rows, columns : labels to forget, with their entries and features.
        entries : entries to forget: a matrix, or a pair of row labels and column labels.
        row_features, column_features : labels of which only the features are forgotten.
        missing : "error" raises an error for anything that is not known, "ignore" skips it.
        """
        fitted = self._require_fitted()
        plan = plan_forget(fitted.entries, rows, columns, entries, row_features, column_features, missing=missing)
        found = forget(fitted.entries, plan)
        left = replace(
            fitted,
            given=None if fitted.given is None else forget(fitted.given, plan).store,
            predictor=fitted.predictor.without(found.gone_rows, found.gone_columns),
            presence=None if fitted.presence is None else fitted.presence.without_columns(found.gone_columns),
        )
        return self._encode_again(found.store, left, found.rows, found.columns)

    def with_names(self, rows: GivenNames | None = None, columns: GivenNames | None = None) -> Self:
        """Return a model that shows names beside the ids of rows and columns, such as titles; ids stay the keys.

        This model stays as it is. Names appear in rankings, explanations, reports, plots and the page of the service,
        and are saved with the model. They replace earlier names of the same ids; some ids may have none.

        Parameters
        ----------
        rows, columns : a dict of names by id; a frame with a column of ids and a column of names, called title or
            name if there are more columns; or `Features` with such a column.

        Examples
        --------
        >>> from deepmf import Means, ObservedMatrix
        >>> ratings = ObservedMatrix.from_entries(["ann", "ann", "bob"], [7, 9, 9], [5, 1, 2])
        >>> model = Means(seed=0).fit(ratings).with_names(columns={7: "Alien", 9: "Big"})
        >>> model.recommend("bob").names.tolist()
        ['Alien']
        """
        fitted = self._require_fitted()
        model = copy.copy(self)
        given = None if fitted.given is None else fitted.given.with_names(rows, columns)
        model._fitted = replace(fitted, entries=fitted.entries.with_names(rows, columns), given=given)
        return model

    def fold_in(
        self,
        columns: Iterable[Any] = (),
        values: Iterable[float] = (),
        *,
        times: Iterable[Any] | None = None,
        features: FeatureValues | None = None,
    ) -> FoldedRows:
        """Return an unstored row with these entries; it predicts and ranks like a row that `extend` added.

        Nothing is kept, no label is needed, and the cost is that of one row. `features` maps names to values, for a
        model that was fitted with row features; a row with features needs no entries. Interactions need no values.
        `times` are the dates of the entries, which count by their age in a model with a `half_life`; entries without a
        date are new.
        """
        return self._fold_in([(columns, values, times)], None if features is None else [features], single=True)

    def fold_in_many(
        self, histories: Sequence[RowHistory], *, features: Sequence[FeatureValues | None] | None = None
    ) -> FoldedRows:
        """Return one unstored row for each history, columns and values (and times), computed in one pass."""
        return self._fold_in(histories, features, single=False)

    def fold_in_column(
        self,
        rows: Iterable[Any] = (),
        values: Iterable[float] = (),
        *,
        times: Iterable[Any] | None = None,
        features: FeatureValues | None = None,
    ) -> FoldedColumns:
        """Return an unstored column with these entries; it predicts like a column that `extend` added."""
        from deepmf.models.fold_in import fold_in_column

        fitted = self._require_fitted()
        self._areas.check_folds_in("column")
        history, half_life = (rows, values, times), self._half_life
        return fold_in_column(fitted.rankers, fitted.predictor, history, features, half_life=half_life)

    def predict(
        self, rows: Iterable[Any], columns: Iterable[Any], *, at: Any = None, unknown: Unknown = "error"
    ) -> FloatArray:
        """Return the prediction for each pair of a row and a column, in the scale's units.

        Parameters
        ----------
        rows, columns : the labels of the pairs, of one length.
        at : the time to predict for, or one for each pair: dates, datetimes, ISO texts or Unix seconds (default: the
            time of the latest training entry). Only a model that is fitted with `times="auto"` takes a time.
        unknown : what happens to a pair whose row or column is unknown, here and in all methods that take pairs.
            "error" raises `UnknownLabel`, "nan" returns NaN, and "fallback" predicts as `Means` does: the overall mean,
            plus the effect of the row or the column that is known.
        """
        pairs = self._find_value_pairs(rows, columns, unknown)
        drift = self.drift_at(at, pairs.rows.size)
        predicted = pairs.evaluate(self.predictor_.predict, self._predict_by_means)
        return predicted if drift is None else drift.move_pairs(predicted, pairs.rows, pairs.columns)

    def predict_levels(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        *,
        at: Any = None,
        metric: str = "rmse",
        unknown: Unknown = "error",
    ) -> FloatArray:
        """Return a legal level for each pair of a row and a column.

        `metric` is the criterion that the levels optimise: "rmse", "mae" or "accuracy". It matters only to models that
        predict a distribution. With `unknown="fallback"`, the level is the one nearest to the fallback's mean. `at` is
        the time to predict for, as in `predict`.
        """
        scale, predictor = self.scale_, self.predictor_
        check_has_values(scale)
        check_levels(scale, metric)

        def fall_back(rows: IndexArray, columns: IndexArray) -> FloatArray:
            if metric != "rmse" and self.gives_distribution:
                return self._count_levels(rows, columns).best(metric)
            return scale.nearest_level(self._predict_means(rows, columns))

        pairs = find_pairs(self.entries_, rows, columns, unknown)
        drift = self.drift_at(at, pairs.rows.size)
        if drift is None:
            return pairs.evaluate(lambda *pair: predictor.levels(*pair, metric=metric), fall_back)
        if metric != "rmse" and self.gives_distribution:
            return self._read_distributions(rows, columns, unknown, at, lambda found: found.best(metric))
        predicted = pairs.evaluate(predictor.predict, self._predict_by_means)
        return drift._replace(rounds=True).move_pairs(predicted, pairs.rows, pairs.columns)

    def predict_distribution(
        self, rows: Iterable[Any], columns: Iterable[Any], *, at: Any = None, unknown: Unknown = "error"
    ) -> FloatArray:
        """Return the probability of each level, (pairs, levels); on a scale without levels, of each bin (`support_`).

        `at` is the time to predict for, as in `predict`: with drift, the mean of a distribution moves as far as the
        prediction does, up to the last hundredth of the scale.

        With `unknown="fallback"`, the probabilities are the frequencies of the levels among the entries of the known
        row or column, smoothed by five entries at the frequencies of training; if neither is known, the latter alone.
        A model that predicts only values raises `BadSetting`.
        """
        return self._read_distributions(rows, columns, unknown, at, lambda found: found.probabilities)

    def predict_interval(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        *,
        at: Any = None,
        coverage: float = 0.9,
        unknown: Unknown = "error",
    ) -> Interval:
        """Return intervals that contain the true value with about this probability, at a time as in `predict`.

        On a scale with levels, the interval grows from the most probable level until its probability is nearest to
        the coverage. Without levels, it lies between two tails of equal probability. A model that predicts only values
        raises `BadSetting`.
        """
        check_coverage(coverage)
        ends = self._read_distributions(rows, columns, unknown, at, lambda found: found.ends(coverage, self.scale_))
        return Interval(*ends.T)

    def scores(
        self, rows: Iterable[Any], columns: Iterable[Any], *, at: Any = None, unknown: Unknown = "error"
    ) -> FloatArray:
        """Return the real-valued score of each pair in the scale's units, even if `predict` returns levels."""
        predictor = self.predictor_
        pairs = self._find_value_pairs(rows, columns, unknown)
        drift = self.drift_at(at, pairs.rows.size)
        found = pairs.evaluate(
            lambda *pair: predictor.readout.units(predictor.score_pairs(*pair)),
            lambda *pair: self.scale_.clip(self._predict_means(*pair)),
        )
        return found if drift is None else drift._replace(rounds=False).move_pairs(found, pairs.rows, pairs.columns)

    def areas(self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error") -> npt.NDArray[np.str_]:
        """Return the area of each pair: "I" both trained, "II" new row, "III" new column, "IV" both new.

        If unknown labels are allowed, the area of their pairs is "".
        """
        pairs = find_pairs(self.entries_, rows, columns, unknown)
        return np.where(pairs.are_known, self.entries_.areas(pairs.rows, pairs.columns), "")

    def row_counts(self, rows: Iterable[Any]) -> npt.NDArray[np.int64]:
        """Return the number of entries over the trained columns of each row, (rows,)."""
        distinct, which = np.unique(self.entries_.rows.positions(rows), return_inverse=True)
        counts: npt.NDArray[np.int64] = np.diff(self.entries_.row_entries(distinct).starts)[which]
        return counts

    def recommend(
        self,
        rows: Any,
        n: int = 10,
        *,
        rank_by: RankBy | None = None,
        relevant: float | None = None,
        rerank: Rerank | None = None,
        at: Any = None,
        neighbours: ColumnNeighbours | None = None,
        **columns: Unpack[ColumnFilter],
    ) -> Ranking:
        """Return the n best columns of one row, or of each row of a list, best first.

        Columns for which the row has an entry are left out. In a ranking of several rows, a line with fewer than n
        columns is filled up with NaN. The values are predictions, however the columns are ranked; the attributes
        `presence` and `liked` of the ranking are the probabilities that an entry exists, and that its value is then at
        least the relevant one; `distribution` has the probability of each level, if the model predicts distributions;
        `names` are the names of the columns (see `with_names`).

        Parameters
        ----------
        rows : a row label, or several.
        n : the number of columns.
        rank_by : "relevance" ranks by the probability that the row takes the column and likes it, "value" by the
            prediction. The default (None) is the setting `rank_by`: relevance where few cells have an entry, value
            where most cells have one. A model without a presence part ranks by value.
        relevant : the smallest value that counts as liked; default: the mean of the row's entries, rounded up to a
            level. A row without entries takes the mean of all entries, and the popularity of the columns.
        rerank : "mmr" picks columns that differ from each other among the 5 n best, by maximal marginal relevance.
            None keeps the order.
        at : the time of the recommendation, for which values are predicted and which decides what is popular (default:
            that of the latest entry). Only a model that is fitted with `times="auto"` takes a time.
        neighbours : an index from `column_neighbours`, which searches only the columns near a row. Rankings are exact
            without it.
        among : rank only these columns: labels, or a mask over all columns.
        exclude : leave these columns out: labels, or a mask over all columns.
        min_entries : leave out columns with fewer entries, whose predictions are uncertain.
        include_observed : also rank columns for which the row has an entry.
        where : rank only columns whose features meet all conditions, by name: `{"year": {"min": 1990, "max": 1999}}`
            for numbers and dates (years or dates), `{"genres": {"any": ["Drama"]}}` for categories and lists, also with
            "all" and "none". Columns without the feature are left out.
        """
        entries = self.entries_
        single = is_label(rows, entries.rows)
        positions = entries.rows.positions([rows] if single else rows)
        choice = choose_columns(entries, **columns)
        ranker = self.make_ranker(check_neighbours(neighbours, rank_by), relevant, at)
        best = rank_columns(
            ranker,
            entries.columns,
            positions,
            choice,
            n,
            observed=entries.seen_columns,
            neighbours=neighbours,
            reranker=make_reranker(rerank, entries, ranker.predictor),
        )
        fields = (*entries.train.form.name_ids_beside(FRAME_FIELDS), "prediction")
        if single:
            return best.first().describe(entries.column_names, fields)
        return best.describe(entries.column_names, fields, entries.rows[positions])

    def make_ranker(self, rank_by: RankBy | None = None, relevant: float | None = None, at: Any = None) -> Ranker:
        """Return the ranker of the rows, whose `rank_block` gives the keys by which `recommend` ranks columns."""
        fitted, drift = self._require_fitted(), self.drift_at(at)
        moment = None if at is None else parse_time(at)
        return fitted.rankers.make(fitted.predictor, fitted.entries.seen_columns, rank_by, relevant, moment, drift)

    def recommend_to(
        self,
        path: str | Path,
        rows: Iterable[Any] | None = None,
        n: int = 10,
        *,
        rank_by: RankBy | None = None,
        relevant: float | None = None,
        rerank: Rerank | None = None,
        device: str | None = None,
        **columns: Unpack[ColumnFilter],
    ) -> int:
        """Write the n best columns of some rows, or of all rows (None), to a file in bounded memory.

        The name ends in .csv, .tsv, .jsonl or .parquet. A line has the row, the rank from 1, the column, the prediction
        and, if the model has them, the probabilities `presence`, `liked` and `distribution` of `recommend`. The last is
        a list, whose items are joined with bars in delimited text. The keyword arguments are those of `recommend`.

        device: "cuda", "cpu" or "auto" rank by value with torch, which is fast on a GPU; None ranks with numpy.

        Returns
        -------
        The number of lines.
        """
        if rows is not None and is_label(rows, self.entries_.rows):
            rows = [rows]
        ranker = self.make_ranker(rank_by, relevant)
        return Recommendations.of(self.entries_, ranker, rows, n, rerank=rerank, device=device, **columns).write(path)

    def column_neighbours(self) -> ColumnNeighbours:
        """Return an index of the trained columns, with which `recommend` takes milliseconds for millions of columns.

        It needs the extra `ann`, and takes seconds to build for every million columns. Its `recall` says how many of
        the ten best columns it finds. It also serves the models that `extend` and `forget` make from this one.
        """
        check_has_values(self.scale_)
        return ColumnNeighbours(self.predictor_)

    def similar_rows(self, row: Any, n: int = 10) -> Ranking:
        """Return the n rows most similar to a row, and their similarities.

        These are the cosines of their latents; for interactions, those of their entries.
        """
        if self.scale_.is_interactions:
            found = find_similar_rows(self.entries_, row, n)
        else:
            found = most_similar(self.predictor_.directions(self.predictor_.rows), self.entries_.rows, row, n)
        row, column = self.entries_.train.form.name_ids_beside(FRAME_FIELDS)
        return found.describe(self.entries_.row_names, (column, row, "cosine"))

    def similar_columns(self, column: Any, n: int = 10) -> Ranking:
        """Return the n columns most similar to a column, and their similarities, as in `similar_rows`."""
        if self.scale_.is_interactions:
            found = find_similar_columns(self.entries_, column, n)
        else:
            found = most_similar(self.predictor_.directions(self.predictor_.columns), self.entries_.columns, column, n)
        ids = self.entries_.train.form.name_ids_beside(FRAME_FIELDS)
        return found.describe(self.entries_.column_names, (*ids, "cosine"))

    def explain(self, row: Any, column: Any, n: int = 5, *, axis: Axis = "row") -> Explanation:
        """Return the n entries of the row that moved its prediction for the column the most.

        The effect of an entry is the prediction with all entries minus the prediction without this entry. Entries over
        new columns describe nothing and have no effect. In a row of more than 256 entries, only the most prominent
        ones are tried. For a model that was fitted with features, the features of the row are left out in turn, too.
        The attribute `presence` has the entries that raise the probability that the row takes the column at all. For
        interactions, all effects are those on this probability.

        Parameters
        ----------
        row, column : the labels of the pair.
        n : the largest number of entries and of features to return.
        axis : "row" explains by the entries of the row, "column" by the entries of the column.
        """
        from deepmf.models.explanation import check_axis, explain_pair

        fitted = self._require_fitted()
        check_axis(axis)
        self._areas.check_explains(axis)
        return explain_pair(fitted.rankers, fitted.predictor, row, column, n, axis=axis)

    def complete(self, *, at: Any = None) -> FloatArray:
        """Return the whole matrix, (rows, columns): observed entries as they are, all others predicted.

        `at` is the time to predict for, as in `predict`.
        """
        from deepmf.models.completion import complete_array

        return complete_array(self.entries_, self.predictor_, self.drift_at(at))

    def complete_frame(self, *, at: Any = None) -> Any:
        """Return every missing entry as a long polars frame with the column names of the training data."""
        from deepmf.models.completion import complete_frame

        return complete_frame(self.entries_, self.predictor_, self.drift_at(at))

    def complete_to(self, path: str | Path, *, at: Any = None) -> int:
        """Write every missing entry to a file in bounded memory; return their number.

        The name ends in .csv, .tsv, .jsonl or .parquet. A line has the row, the column and the value.
        """
        from deepmf.models.completion import complete_to

        return complete_to(self.entries_, self.predictor_, path, self.drift_at(at))

    def save(
        self,
        path: str | Path,
        *,
        largest_file: int = LARGEST_FILE,
        check: Callable[[Path], object] = lambda _: None,
    ) -> None:
        """Write the model to one file or to a folder, completely or not at all.

        The model becomes a folder of memory-mapped shards if the name ends in ".model", if a model folder is there
        already, or if its arrays take more than `largest_file` bytes. It replaces a file or another model folder; any
        other folder is refused. The same entries, settings and seed give the same bytes: the duration of training and
        the number of threads are not stored.

        Parameters
        ----------
        path : the file or the folder.
        largest_file : the size in bytes above which the model becomes a folder.
        check : called with the written file or folder before it takes its name; if it raises, nothing changes.
        """
        entries, learned = self.entries_, self.predictor_.pack()
        presence = self._require_fitted().presence
        packed = {"learned": learned} if presence is None else {"learned": learned, "presence": presence.pack()}
        drift = self._require_fitted().drift
        packed |= {} if drift is None else {"drift": drift.pack()}
        recency = self._require_fitted().recency
        packed |= {} if recency is None else {"recency": Packed(recency._asdict(), {})}
        n_bytes = sum(tensor.nbytes for part in packed.values() for tensor in part.tensors.values())
        in_folder = goes_to_folder(path, entries.train.nbytes + n_bytes, largest_file=largest_file)
        parts = _pack_entries(entries, in_folder=in_folder) | packed
        content = {
            "class": type(self).__name__,
            "settings": self.settings.to_dict(),
            "chosen": sorted(self.chosen_),
            "history": self.history_.drop_times().to_dict(),
        } | {name: part.content for name, part in parts.items()}
        tensors = {name: tensor for part in parts.values() for name, tensor in part.tensors.items()}
        (write_folder if in_folder else write_file)(path, kind="model", content=content, tensors=tensors, check=check)

    @classmethod
    def from_stored(cls, content: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> Self:
        """Return the model that `save` wrote; contents that no model could have raise `BadModelFile`."""
        settings = read_field(content, "settings")
        if not isinstance(settings, dict):
            raise BadModelFile(f"the stored settings must have names; got {reprlib.repr(settings)}")
        with refuse_stored("settings"):
            model = cls(**cls.settings_class.drop_removed(settings))
        model.chosen_ = read_choice(read_field(content, "chosen"), model.settings)
        model._given -= model.chosen_.keys()
        given = entries = _unpack_entries(content, tensors, model._areas, takes_features=cls.takes_features)
        if model._half_life is not None:
            with refuse_stored("half-life"):
                entries = given.weigh_by_age(model._half_life)
        model.history_ = History.from_dict(read_field(content, "history"))
        with refuse_stored(cls.__name__):
            predictor = (
                InteractionPredictor.of(entries)
                if entries.scale.is_interactions
                else model._load_predictor(entries, read_field(content, "learned"), tensors)
            )
        presence = Presence.unpack(content["presence"], tensors, entries) if "presence" in content else None
        drift = Drift.unpack(content["drift"], tensors) if "drift" in content else None
        recency = Recency.from_dict(content["recency"]) if "recency" in content else None
        fitted = Fitted(entries, predictor, presence, model._default_order(presence), drift, recency)
        model._fitted = fitted if given is entries else replace(fitted, given=given)
        return model

    def drift_at(self, at: Any = None, n_pairs: int | None = None) -> DriftAt | None:
        """Return the drift at a time, or at one time for each of some pairs; None for a model without drift.

        The default is the time of the latest training entry. A model that ignores times refuses one.
        """
        drift, times = self._require_fitted().drift, None
        if at is not None:
            self._check_takes_time(at)
            several = n_pairs is not None and isinstance(at, list | tuple | np.ndarray)
            times = parse_times(at, n_pairs).seconds if several else parse_time(at)
        if drift is None:
            return None
        rounds = self.predictor_.readout.predicts_levels
        return DriftAt(drift, drift.latest if times is None else times, self.scale_, rounds)

    @property
    def has_drift(self) -> bool:
        """Whether predictions depend on the time they are for."""
        return self._require_fitted().drift is not None

    @property
    def is_fitted(self) -> bool:
        """Whether the model has learned anything."""
        return self._fitted is not None

    @property
    def entries_(self) -> EntryStore:
        """The entries that the model knows, as they were given: those of training, and those added by `extend`."""
        fitted = self._require_fitted()
        return fitted.entries if fitted.given is None else fitted.given

    @property
    def predictor_(self) -> Predictor:
        """The predictor: latents, the encoder that computes them, and their readout."""
        return self._require_fitted().predictor

    @property
    def rankers_(self) -> Rankers:
        """Makes the rankers of columns, also for rows that are folded in."""
        return self._require_fitted().rankers

    @property
    def scale_(self) -> Scale:
        """The scale of the training matrix."""
        return self.entries_.scale

    @property
    def row_labels_(self) -> npt.NDArray[Any]:
        """The labels of all known rows."""
        return self.entries_.rows.array

    @property
    def column_labels_(self) -> npt.NDArray[Any]:
        """The labels of all known columns."""
        return self.entries_.columns.array

    @property
    def row_names_(self) -> Mapping[Any, str]:
        """The names of rows by label; not all rows have one."""
        return self.entries_.row_names or {}

    @property
    def column_names_(self) -> Mapping[Any, str]:
        """The names of columns by label; not all columns have one."""
        return self.entries_.column_names or {}

    @property
    def row_latents_(self) -> LatentArray:
        """The latents of all rows, (rows, latent), in the order of `row_labels_`, without effects and means."""
        return self.predictor_.proper(self.predictor_.rows)

    @property
    def column_latents_(self) -> LatentArray:
        """The latents of all columns, (columns, latent), in the order of `column_labels_`."""
        return self.predictor_.proper(self.predictor_.columns)

    @property
    def gives_distribution(self) -> bool:
        """Whether the model predicts distributions, and so intervals."""
        return self.predictor_.readout.gives_distribution

    @property
    def support_(self) -> FloatArray:
        """The values that the columns of a distribution stand for: the levels, or the mean values of the bins."""
        return self.predictor_.readout.support

    @property
    def chosen_on_entries_(self) -> dict[str, float]:
        """Quantities beside the best epoch that were chosen on held-out entries, those of the presence part here.

        `presence_ndcg` and `popularity_ndcg` are the NDCG@10 of both rankings on these entries.
        """
        presence = self._require_fitted().presence
        return {} if presence is None else presence.describe_choice()

    def __repr__(self) -> str:
        return self._view.text()

    def _repr_html_(self) -> str:
        return self._view.html()

    # The methods that a model class defines.

    @abstractmethod
    def _make_task(self, entries: EntryStore, validation: ValidationEntries | None) -> Any:
        """Return the `Task` that the training loop runs on these entries and features."""

    @abstractmethod
    def _make_predictor(self, task: Any, entries: EntryStore, fitting: Fitting) -> Predictor:
        """Return the predictor of a finished task; `fitting.show_stage` shows stages that follow the epochs."""

    @abstractmethod
    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        """Return the predictor whose `pack` gave this content and these tensors."""

    # The methods that a model class may define.

    def _make_warm_task(self, entries: EntryStore, validation: ValidationEntries | None, start: WarmStart) -> Any:
        """Return the task of a warm start."""
        task = self._make_task(entries, validation)
        self._begin_from(task, start)
        return task

    def _begin_from(self, task: Any, start: WarmStart) -> None:
        """Let a task begin with the weights or factors of a fitted model."""
        raise NotImplementedError(f"{type(self).__name__} is not learned in epochs")

    def _choose_settings(self, train: ObservedMatrix, earlier: Settings | None) -> dict[str, Any]:
        """Return settings that suit a matrix and the machine; those of an earlier model replace them."""
        return {}

    def _check_memory(self, entries: EntryStore) -> None:
        """Refuse a fit that needs more memory than is free."""
        return  # most models need little beside the matrix

    def _describe_work(self, train: ObservedMatrix, epochs: int) -> str:
        """Describe the computation in a few words, for the plan of a fit."""
        return f"{epochs} epochs"

    def _estimate_share_after(self, train: ObservedMatrix) -> float:
        """Estimate the time after the epochs as a share of their time."""
        return 0.0

    @property
    def _on_gpu(self) -> bool:
        """Whether the model is trained on a GPU."""
        return False

    def _predict_means(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the fallback's mean for each pair of positions; -1 is an unknown row or column."""
        return self._require_fitted().fallback.means(rows, columns)

    def _learn(self, entries: EntryStore, validation: ValidationEntries | None, fitting: Fitting) -> None:
        """Run the training loop, and set the history and the predictor."""
        with limit_threads(getattr(self.settings, "device", "cpu")) as threads:
            settings, start = self.settings, fitting.start
            fingerprint = identify_training(type(self).__name__, settings, entries, validation, start)
            with _refusing_unsolvable():
                task: Task = (
                    self._make_task(entries, validation)
                    if start is None
                    else self._make_warm_task(entries, validation, start)
                )
            if start is not None:
                settings = start.shorten(settings)
            self.history_ = replace(fitting, threads=threads).run(task, settings, fingerprint)  # type: ignore[arg-type]
            if self.history_.best_epoch is None and self.history_.stopped == "diverged":
                return
            with _refusing_unsolvable():
                self._set_fitted(entries, self._make_predictor(task, entries, fitting))

    def _fit_interactions(
        self,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        row_names: GivenNames | None,
        column_names: GivenNames | None,
    ) -> Self:
        """Fit the presence part alone; an error leaves the model as it was."""
        if getattr(self.settings, "presence", None) is None:
            raise BadSetting(
                f"{type(self).__name__} has no presence part, and interactions have no values to learn; fit ALS or "
                "another model with presence='auto'"
            )
        if train.n_entries == train.shape[0] * train.shape[1]:
            raise BadEntries("there is nothing to learn: every row has an entry in every column")
        if validation is not None:
            check_matrix(validation, "validation")
        model, given, train = copy.copy(self), train, weigh_by_age(train, self._half_life)
        aligned = ValidationEntries.of(train, validation)
        entries = EntryStore.of(train).with_names(row_names, column_names)
        times = getattr(self.settings, "times", None)
        recency = None if times is None else learn_recency(train, seed=self.settings.seed)
        model.history_, model.chosen_ = History(), {"rank_by": "relevance"}
        model.settings = replace(model.settings, **model.chosen_)
        model._fitted = Fitted(entries, InteractionPredictor.of(entries), recency=recency)
        model._keep_given(given)
        model._learn_presence(aligned)
        self.__dict__.update(model.__dict__)
        return self

    def _learn_presence(self, validation: ValidationEntries | None) -> None:
        """Fit the presence part of a model that has learned to predict, if its settings ask for one."""
        fitted, settings = self._fitted, self.settings
        kind = getattr(settings, "presence", None)
        if fitted is None or kind is None:
            return
        with limit_threads(getattr(settings, "device", "cpu")), _refusing_unsolvable():
            found = fit_presence(
                fitted.entries,
                fitted.predictor,
                kind,
                None if validation is None else PlacedEntries(*validation),
                folds_in=self._areas.covers_new("row"),
                seed=settings.seed,
            )
        if "presence" not in self._given:
            chosen: dict[str, Any] = {"presence": None if found is None else found.kind}
            self.settings, self.chosen_ = replace(settings, **chosen), self.chosen_ | chosen
        self._fitted = replace(fitted, presence=found, rank_by=self._default_order(found))

    def _learn_drift(self, aligned: ValidationEntries | None, validation: ObservedMatrix | None) -> None:
        """Learn how rows and columns drift with time, if the settings ask for it and the entries have dates.

        Validation entries, which the model has not learned from, decide how much of it joins the predictions; without
        any, training entries do, whose residuals are smaller.
        """
        fitted = self._fitted
        if fitted is None or getattr(self.settings, "times", None) is None:
            return
        train = fitted.entries.train
        drift = learn_drift(train, seed=self.settings.seed)
        if drift is not None and train.times is not None:
            known = PlacedEntries(train.entry_rows, train.by_row.columns, train.values.astype(np.float64)), train.times
            if aligned is not None and validation is not None and validation.times is not None:
                known = PlacedEntries(*aligned), validation.times
            entries, times = known
            some = sample_places(times.size, seed=self.settings.seed)
            pairs = entries.rows[some], entries.columns[some]
            residuals = entries.values[some] - fitted.predictor.predict(*pairs)
            drift = drift.join(residuals, *pairs, times[some])
        self._fitted = replace(fitted, drift=drift, recency=learn_recency(train, seed=self.settings.seed))

    def _default_order(self, presence: Presence | None) -> RankBy:
        """Return the order in which columns are ranked unless another is asked for."""
        by_relevance = presence is not None and getattr(self.settings, "rank_by", "value") == "relevance"
        return "relevance" if by_relevance else "value"

    # Internals.

    def _require_fitted(self) -> Fitted:
        if self._fitted is None:
            raise NotFitted(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._fitted

    @property
    def _half_life(self) -> str | None:
        """The age at which an entry counts half; None where age does not matter."""
        return getattr(self.settings, "half_life", None)

    def _keep_given(self, train: ObservedMatrix) -> None:
        """Keep the training entries as they were given, where their weights were changed."""
        if self._fitted is not None and train is not self._fitted.entries.train and self._half_life is not None:
            self._fitted = replace(self._fitted, given=replace(self._fitted.entries, train=train))

    def _set_fitted(self, entries: EntryStore, predictor: Predictor) -> None:
        """Store a predictor, unless its latents or their products leave the range of their type."""
        if not predictor.rows.products_are_finite(predictor.columns):
            self._fitted = None
            raise TrainingDiverged(
                f"what was learned is too large: latents or their products are not finite numbers (the scale is "
                f"{entries.scale}; divide the values by a constant)"
            )
        self._fitted = Fitted(entries, predictor)

    def _with_choice(self, train: ObservedMatrix, start_from: Model | None) -> Self:
        """Return a copy in which settings that were not given are chosen for a matrix, or taken from `start_from`.

        A fitted model needs its settings until it is fitted again, so this model stays as it is.
        """
        earlier = start_from.settings if start_from is not None and type(start_from) is type(self) else None
        model = copy.copy(self)
        model.settings, model.chosen_ = fill_settings(
            self.settings, self._given, self._choose_settings(train, earlier), earlier
        )
        if hasattr(model.settings, "presence"):
            order: dict[str, Any] = {"presence": "auto", "rank_by": choose_order(train)}
            chosen = {name: value for name, value in order.items() if name not in self._given}
            model.settings, model.chosen_ = replace(model.settings, **chosen), model.chosen_ | chosen
        return model

    @contextmanager
    def _use_settings_of(self, chosen: Self) -> Iterator[None]:
        """Take the settings of a fit; if it learns nothing, restore the earlier ones."""
        before = self.settings, self.chosen_, self._fitted
        self.settings, self.chosen_ = chosen.settings, chosen.chosen_
        try:
            yield
        finally:
            if self._fitted is before[2]:
                self.settings, self.chosen_, _ = before

    def _plan_epochs(self, train: ObservedMatrix, *, warm: bool) -> FitPlan | None:
        """Return the plan of a fit with these settings."""
        settings = self.settings
        if not isinstance(settings, LoopSettings) or not train.has_values:
            return None
        if warm:
            from deepmf.models.warm_start import WarmStart

            settings = WarmStart.shorten(settings)
        effort = getattr(settings, "effort", None)
        name = type(self).__name__ + ("" if effort is None else f" (effort {effort})")
        text = f"fitting {name} to {train.n_entries:,} entries: {self._describe_work(train, settings.epochs)}"
        return FitPlan(text, settings.epochs, self._estimate_share_after(train), n_slow=int(self._on_gpu))

    def _check_start(self, start_from: Model, new: EntryStore, validation: ValidationEntries | None) -> WarmStart:
        """Return the warm start from a fitted model; refuse a model of another class, scale or settings."""
        from deepmf.models.warm_start import WarmStart, check_settings

        if type(start_from) is not type(self):
            given = type(start_from).__name__
            raise BadSetting(f"start_from must be a fitted {type(self).__name__}; got {given}")
        entries, predictor = start_from.entries_, start_from.predictor_
        check_settings(self.settings, start_from.settings)
        if entries.scale != new.scale:
            raise BadSetting(f"start_from was fitted to the scale {entries.scale}; the matrix has {new.scale}")
        start = WarmStart(entries, predictor, new.train, new.row_features, new.column_features)
        start.check(validation)
        return start

    def _add_featured_labels(self, row_features: Features | None, column_features: Features | None) -> None:
        """Add the rows and columns that have features but no entries."""
        if self._fitted is None:
            return
        rows, columns = self._fitted.entries.rows, self._fitted.entries.columns
        new_rows = None if row_features is None else row_features.take_unknown(rows)
        new_columns = None if column_features is None else column_features.take_unknown(columns)
        if new_rows is not None or new_columns is not None:
            self._fitted = self.extend(row_features=new_rows, column_features=new_columns)._fitted

    def _encode_again(self, entries: EntryStore, fitted: Fitted, rows: IndexArray, columns: IndexArray) -> Self:
        """Return a copy with other entries, in which some rows and columns are encoded from these again."""
        model, areas = copy.copy(self), self._areas
        rows = rows if areas.covers_new("row") else rows[:0]
        columns = columns if areas.covers_new("column") else columns[:0]
        presence = None if fitted.presence is None else fitted.presence.extend(entries, columns)
        predictor = fitted.predictor.extend(entries, rows, columns)
        model._fitted = replace(fitted, entries=entries, predictor=predictor, presence=presence)
        return model

    def _fold_in(
        self, histories: Sequence[RowHistory], features: Sequence[FeatureValues | None] | None, *, single: bool
    ) -> FoldedRows:
        from deepmf.models.fold_in import fold_in_rows

        fitted = self._require_fitted()
        self._areas.check_folds_in("row")
        if not histories:
            raise BadEntries("there is no history to fold in")
        half_life = self._half_life
        return fold_in_rows(fitted.rankers, fitted.predictor, histories, features, single=single, half_life=half_life)

    def _read_distributions(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        unknown: Unknown,
        at: Any,
        read: Callable[[PredictiveDistribution], FloatArray],
    ) -> FloatArray:
        """Return `read` of the predictive distributions of pairs of labels, at a time."""
        predictor = self.predictor_
        check_has_values(self.scale_)
        if not self.gives_distribution:
            raise BadSetting(
                f"{type(self).__name__} predicts a value, not a distribution; OrdinalDMF, ICFNADE and UCFNADE do both"
            )
        pairs = find_pairs(self.entries_, rows, columns, unknown)
        drift = self.drift_at(at, pairs.rows.size)
        if drift is None:
            return pairs.evaluate(
                lambda *pair: read(predictor.distribution(*pair)), lambda *pair: read(self._count_levels(*pair))
            )
        static = pairs.evaluate(predictor.predict, self._predict_by_means)
        amounts, known = drift.move_pairs(static, pairs.rows, pairs.columns) - static, pairs.are_known
        return pairs.evaluate(
            lambda *pair: read(predictor.distribution(*pair).shift(amounts[known])),
            lambda *pair: read(self._count_levels(*pair).shift(amounts[~known])),
        )

    def _find_value_pairs(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> LabelPairs:
        """Return the positions of pairs of labels whose values can be predicted."""
        check_has_values(self.scale_)
        return find_pairs(self.entries_, rows, columns, unknown)

    def _check_takes_time(self, at: Any) -> None:
        """Refuse a time that the model would ignore."""
        if getattr(self.settings, "times", None) is None:
            raise BadSetting(
                f"this {type(self).__name__} was fitted without times and cannot answer for at={reprlib.repr(at)}",
                hint=Hint("fit it with times='auto'", "fit it with --set times=auto"),
            )

    def _count_levels(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return the fallback's distribution for each pair of positions: the frequencies of the levels."""
        return self._require_fitted().fallback.distribution(rows, columns, self.predictor_.readout)

    def _predict_by_means(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the fallback's prediction for each pair of positions: a level if the model predicts levels."""
        means = self._predict_means(rows, columns)
        return self.scale_.nearest_level(means) if self.predictor_.readout.predicts_levels else self.scale_.clip(means)

    def _measure_means(self, validation: ValidationEntries) -> float:
        """Return the root mean squared error of the means on validation entries."""
        return rmse_error(self._predict_by_means(validation.rows, validation.columns), validation.values)

    @property
    def _view(self) -> ModelView:
        from deepmf.models.view import ModelView

        own = self.settings_class.from_names(self.own_settings)
        entries = None if self._fitted is None else self._fitted.entries
        return ModelView(type(self).__name__, own, self.chosen_, entries, self.history_)

    @property
    def _areas(self) -> PredictedAreas:
        return PredictedAreas(type(self).__name__, self.predicts, self.cannot)


@contextmanager
def _refusing_unsolvable() -> Iterator[None]:
    """Raise `TrainingDiverged` if linear algebra finds no solution because the values are too large."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise TrainingDiverged(f"the values are too large, or too far apart, for this method ({error})") from error


def _pack_entries(entries: EntryStore, *, in_folder: bool) -> dict[str, Packed]:
    """Return the entries and the features as parts of a model file or folder, by name."""
    pack = pack_mapped_matrix if in_folder else pack_matrix
    parts = {"train": pack(entries.train, "train")}
    if entries.extension is not None:
        parts["extension"] = pack(entries.extension, "extension")
    for name, features in (("row_features", entries.row_features), ("column_features", entries.column_features)):
        if features is not None:
            parts[name] = pack_features(features, name)
    for name, names in (("row_names", entries.row_names), ("column_names", entries.column_names)):
        if names:
            parts[name] = pack_names(names, name)
    if entries.dropped.size:
        parts["dropped"] = Packed({}, {"dropped.entries": entries.dropped})
    return parts


def _unpack_entries(
    content: dict[str, Any], tensors: Tensors, areas: PredictedAreas, *, takes_features: bool
) -> EntryStore:
    """Return the stored entries and features; entries that a model cannot have raise `BadModelFile`."""
    train = unpack_any_matrix("train", read_field(content, "train"), tensors)
    added = unpack_any_matrix("extension", content["extension"], tensors) if "extension" in content else None
    dropped = read_numbers(tensors, "dropped.entries", "int64", (None,)) if "dropped" in content else NOTHING
    with refuse_stored("extension"):
        if added is not None:
            areas.check_extends()
        build = EntryStore.from_parts if has_values_to_check(tensors) else EntryStore.from_trusted_parts
        entries = unpack_features(build(train, added, dropped), content, tensors)
        if not takes_features and (entries.row_features or entries.column_features):
            raise BadModelFile(f"the stored model has features, and {areas.method} reads none")
        areas.check_new("row", train.rows, entries.rows)
        areas.check_new("column", train.columns, entries.columns)
    row_names, column_names = (
        unpack_names(f"{axis}_names", content[f"{axis}_names"], tensors, axis=axis)
        if f"{axis}_names" in content
        else None
        for axis in ("row", "column")
    )
    return replace(entries, row_names=row_names, column_names=column_names)
