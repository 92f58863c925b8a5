"""The base class of every model: what users call on a fitted model."""

from __future__ import annotations

import copy
import json
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, Unpack, get_args

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadModelFile, BadSetting, Hint, check_choice
from deepmf.formatting import format_count
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING, Axis
from deepmf.matrix.entries import Conflicts, Pairs, plan_forget
from deepmf.matrix.extras import TimeArray, parse_time, parse_times
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.names import GivenNames
from deepmf.models.completion import complete_array, complete_frame, complete_to, describe_choice
from deepmf.models.estimator import Estimator
from deepmf.models.explanation import Explanation, explain_predictions
from deepmf.models.extension import check_predictions
from deepmf.models.fitted import Fitted, pack_entries, unpack_entries
from deepmf.models.fitting import check_extension, check_weighted, warn_of_nothing
from deepmf.models.fold_in import (
    FeatureValues,
    FoldedColumns,
    FoldedRows,
    History as RowHistory,
    ManyFeatures,
)
from deepmf.models.interactions import InteractionPredictor, find_similar
from deepmf.models.parts import unpack_parts
from deepmf.recommend.column_choice import find_rare_columns
from deepmf.recommend.ranker import Ranker, Rankers
from deepmf.recommend.ranking import (
    FRAME_FIELDS,
    Ranking,
    Recommendations,
    Search,
    is_label,
    most_similar,
    rank_columns,
)
from deepmf.recommend.request import DEFAULT_REQUEST, Request, RequestOptions
from deepmf.scoring.distribution import Interval, PredictiveDistribution, check_coverage
from deepmf.scoring.pairs import Question, Unknown, check_has_values, find_pairs
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import NO_DISTRIBUTION, check_levels
from deepmf.storage.model_file import encode_json, is_mapped, make_header, refuse_stored, write_file
from deepmf.storage.parts import Form, Part
from deepmf.training.history import History, describe_errors
from deepmf.training.settings import list_settings

Missing = Literal["error", "ignore"]

_MOST_FEATURES = 12  # that the text of a model lists by name

_CONTENT = Form(
    Part("settings", "object"),
    Part("chosen", "text", ("chosen",)),
    Part("history", "object"),
    Part("learned", "object"),
    Part("parts", "object"),
)


class Model(Estimator):
    """The base class of every model.

    `Estimator` has the settings, `fit` and the methods that a model class defines. Everything here
    is the same for all models.
    """

    def extend(
        self,
        new: ObservedMatrix | None = None,
        *,
        row_features: Features | None = None,
        column_features: Features | None = None,
        conflicts: Conflicts = "error",
    ) -> Self:
        """Return a model that also covers new rows, columns, entries and features, without
        training.

        This model stays as it is. The result is the same in any order of extensions, up to rounding
        as in `fold_in_many`. A value beyond those of training is kept, and read as the nearest of
        them; a weight as at most the largest of training. Entries from which predictions would not
        be finite numbers raise `BadEntries`.

        A new row is described by its entries over the trained columns, a new column by its entries
        over the trained rows; models that solve for factors also read entries of new rows in new
        columns (area IV), see the concepts page. A row or column without such entries is predicted
        from an empty description, and a `NothingObserved` warning names it. A model that cannot
        predict for new rows or new columns raises `CannotExtend` with the reason.

        Parameters
        ----------
        new : the new entries; None to add only features.
        row_features, column_features : features of new and known labels. Rows and columns may have
            features only. Features of a known row or column replace its old ones.
        conflicts : what happens to an entry that is known with another value: "error" raises
            `DuplicateEntries`, "replace" takes the new value. The weights keep what they learned
            from the old value until the next fit. Counts of interactions add up unless they are
            replaced.
        """
        fitted = self._require_fitted()
        check_extension(new, row_features, column_features, conflicts)
        if new is not None:
            check_weighted(type(self).__name__, new, able=self.takes_weights)
        self._areas.check_extends()
        extended, rows, columns = fitted.extend(
            new,
            self._areas,
            row_features=row_features,
            column_features=column_features,
            conflicts=conflicts,
        )
        store, axes = extended.entries, get_args(Axis)
        for axis, labels, new_at in zip(
            axes, (store.rows, store.columns), (rows, columns), strict=True
        ):
            inputs = extended.predictor.factors.select_inputs(axis, store.all_entries(axis, new_at))
            warn_of_nothing(axis, inputs, labels[new_at])
        return self._with_state(extended)

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

        This model stays as it is. Additions by `extend` disappear completely, also from the file
        that `save` writes; a row or column that `extend` added is no longer known. Trained entries
        disappear from descriptions, rankings and completions: a trained row or column stays known
        and is predicted from its remaining entries. The weights keep what they learned, and the
        training matrix stays in the file, until the next fit without these entries.

        Parameters
        ----------
        rows, columns : labels to forget, with their entries and features.
        entries : entries to forget: a matrix, or a pair of row labels and column labels.
        row_features, column_features : labels of which only the features are forgotten.
        missing : "error" raises an error for anything that is not known, "ignore" skips it.
        """
        fitted = self._require_fitted()
        plan = plan_forget(
            fitted.entries, rows, columns, entries, row_features, column_features, missing=missing
        )
        return self._with_state(fitted.forget(plan, self._areas))

    def with_names(self, rows: GivenNames | None = None, columns: GivenNames | None = None) -> Self:
        """Return a model that shows names beside the ids of rows and columns, such as titles; ids
        stay the keys.

        This model stays as it is. Names appear in rankings, explanations, reports, plots and the
        page of the service, and are saved with the model. They replace earlier names of the same
        ids; some ids may have none.

        Parameters
        ----------
        rows, columns : a dict of names by id; a frame with a column of ids and a column of names,
            called title or name if there are more columns; or `Features` with such a column.

        Examples
        --------
        >>> from deepmf import Means, ObservedMatrix
        >>> ratings = ObservedMatrix.from_entries(["ann", "ann", "bob"], [7, 9, 9], [5, 1, 2])
        >>> model = Means(seed=0).fit(ratings).with_names(columns={7: "Alien", 9: "Big"})
        >>> model.recommend("bob").names.tolist()
        ['Alien']
        """
        fitted = self._require_fitted()
        return self._with_state(replace(fitted, entries=fitted.entries.with_names(rows, columns)))

    def fold_in(
        self,
        columns: Iterable[Any] = (),
        values: Iterable[float] = (),
        *,
        times: Iterable[Any] | None = None,
        ordered: bool = False,
        features: FeatureValues | None = None,
    ) -> FoldedRows:
        """Return an unstored row with these entries; it predicts and ranks like a row that `extend`
        added.

        Nothing is kept, no label is needed, and the cost is that of one row. `features` maps names
        to values, for a model that was fitted with row features; a row with features needs no
        entries. Interactions need no values. `times` are the dates of the entries; entries without
        a date are new. Columns are ranked by what comes next only for entries with dates, or
        `ordered` ones, which are given first to last.
        """
        feature_values = None if features is None else [features]
        return self._fold_in(
            [(columns, values, times)], feature_values, single=True, ordered=ordered
        )

    def fold_in_many(
        self,
        histories: Sequence[RowHistory],
        *,
        ordered: bool = False,
        features: ManyFeatures | None = None,
    ) -> FoldedRows:
        """Return one unstored row for each history, columns and values (and times), computed in one
        pass.

        Predictions differ from those of `fold_in` by rounding alone: by less than 1e-5 of their
        size, and of the width of the scale.
        """
        return self._fold_in(histories, features, single=False, ordered=ordered)

    def fold_in_column(
        self,
        rows: Iterable[Any] = (),
        values: Iterable[float] = (),
        *,
        times: Iterable[Any] | None = None,
        features: FeatureValues | None = None,
    ) -> FoldedColumns:
        """Return an unstored column with these entries; it predicts like a column that `extend`
        added."""
        fitted = self._require_fitted()
        feature_values = None if features is None else [features]
        self._areas.require("column", "predict for new columns")
        return FoldedColumns.of(
            fitted.rankers, fitted.predictor, [(rows, values, times)], feature_values, single=True
        )

    def predict(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        *,
        at: Any = None,
        unknown: Unknown = "error",
    ) -> FloatArray:
        """Return the prediction for each pair of a row and a column, in the scale's units.

        Parameters
        ----------
        rows, columns : the labels of the pairs, of one length.
        at : the time to predict for, or one for each pair: dates, datetimes, ISO texts or Unix
            seconds (default: the time of the latest training entry). Only a model that is fitted
            with `times="auto"` takes a time.
        unknown : what happens to a pair whose row or column is unknown, here and in all methods
            that take pairs. "error" raises `UnknownLabel`, "nan" returns NaN, and "fallback"
            predicts as `Means` does: the overall mean, plus the effect of the row or the column
            that is known.
        """
        return self.ask(
            rows, columns, at, unknown, lambda predictor, *pairs: predictor.predict(*pairs)
        )

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

        `metric` is the criterion that the levels optimise: "rmse", "mae" or "accuracy". It matters
        only to models that predict a distribution. With `unknown="fallback"`, the level is the one
        nearest to the fallback's mean. `at` is the time to predict for, as in `predict`.
        """
        check_has_values(self.scale_)
        check_levels(self.scale_, metric)
        return self.ask(
            rows,
            columns,
            at,
            unknown,
            lambda predictor, *pairs: predictor.predict_levels(*pairs, metric=metric),
        )

    def predict_distribution(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        *,
        at: Any = None,
        unknown: Unknown = "error",
    ) -> FloatArray:
        """Return the probability of each level, (pairs, levels); on a scale without levels, of each
        bin (`support_`).

        `at` is the time to predict for, as in `predict`: with drift, the mean of a distribution
        moves as far as the prediction does, up to the last hundredth of the scale.

        With `unknown="fallback"`, the probabilities are the frequencies of the levels among the
        entries of the known row or column, smoothed by five entries at the frequencies of training;
        if neither is known, the latter alone. A model that predicts only values raises
        `BadSetting`. The mean of a distribution may differ from `predict` for rows and
        columns with few entries, and of BayesianMF, as the class says.
        """
        return self._read_distributions(
            rows, columns, unknown, at, lambda found: found.probabilities
        )

    def predict_interval(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        *,
        at: Any = None,
        coverage: float = 0.9,
        unknown: Unknown = "error",
    ) -> Interval:
        """Return intervals that contain the true value with about this probability, at a time as in
        `predict`.

        On a scale with levels, it is the smallest interval with at least the probability at which
        intervals held this share of held-out entries. Without levels, it lies between two tails of
        equal probability. A model that predicts only values raises `BadSetting`.
        """
        check_coverage(coverage)
        ends = self._read_distributions(
            rows, columns, unknown, at, lambda found: found.ends(coverage, self.scale_)
        )
        return Interval(*ends.T)

    def ask(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        at: Any,
        unknown: Unknown,
        question: Question,
    ) -> FloatArray:
        """Return the answers (pairs, ...) of a function of a predictor and the positions of pairs;
        for unknown labels, that of the fallback. `at` and `unknown` are as in `predict`."""
        check_has_values(self.scale_)
        pairs = find_pairs(self.entries_, rows, columns, unknown)
        times = self._read_times(at, pairs.rows.size)
        return pairs.ask(self.predictor_, self._fallback, question, times)

    def scores(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        *,
        at: Any = None,
        unknown: Unknown = "error",
    ) -> FloatArray:
        """Return the real-valued score of each pair in the scale's units, even if `predict` returns
        levels."""
        return self.ask(
            rows, columns, at, unknown, lambda predictor, *pairs: predictor.predict_units(*pairs)
        )

    def areas(
        self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error"
    ) -> npt.NDArray[np.str_]:
        """Return the area of each pair: "I" both trained, "II" new row, "III" new column, "IV" both
        new.

        If unknown labels are allowed, the area of their pairs is "".
        """
        pairs = find_pairs(self.entries_, rows, columns, unknown)
        return np.where(pairs.are_known, self.entries_.areas(pairs.rows, pairs.columns), "")

    def row_counts(self, rows: Iterable[Any]) -> npt.NDArray[np.int64]:
        """Return the number of entries over the trained columns of each row, (rows,)."""
        distinct, which = np.unique(self.entries_.rows.positions(rows), return_inverse=True)
        return np.diff(self.entries_.row_entries(distinct).starts)[which]

    def recommend(self, rows: Any, n: int = 10, **options: Unpack[RequestOptions]) -> Ranking:
        """Return the n best columns of one row, or of each row of a list, best first.

        Columns for which the row has an entry are left out. In a ranking of several rows, a line
        with fewer than n columns is filled up with NaN. The values are predictions, however the
        columns are ranked; the attributes `presence` and `liked` of the ranking are the
        probabilities that an entry exists, and that its value is then at least the relevant one;
        `distribution` has the probability of each level, if the model predicts distributions;
        `names` are the names of the columns (see `with_names`).

        Parameters
        ----------
        rows : a row label, or several.
        n : the number of columns.
        options : the fields of `deepmf.recommend.Request`: the order of the columns (`rank_by`,
            `relevant`, `at`, `balance`), those to rank (`among`, `exclude`, `where`, `min_entries`,
            `include_observed`), and where they are ranked (`device`).
        """
        return self.answer(rows, Request(n=n, **options))

    def answer(self, rows: Any, request: Request) -> Ranking:
        """Return the columns that are requested for one row, or for each row of a list, as
        `recommend` does."""
        entries = self.entries_
        single = is_label(rows, entries.rows)
        positions = entries.rows.positions([rows] if single else rows)
        search = Search.of(entries, self.make_ranker(request), entries.seen_columns, request)
        return rank_columns(search, positions, None if single else entries.rows[positions])

    def make_ranker(
        self, request: Request | None = None, *, times: TimeArray | None = None
    ) -> Ranker:
        """Return the ranker of the rows, whose `rank_block` gives the keys by which `recommend`
        ranks columns.

        times: Unix seconds of each row of one block of rows, instead of the time of the request.
        """

        request = request or DEFAULT_REQUEST
        fitted = self._require_fitted()
        moment: int | TimeArray | None = times
        if times is None and request.at is not None:
            depends = "recency" in fitted.parts
            moment = parse_time(request.at) if depends else self._read_times(request.at)
        return fitted.rankers.make(fitted.predictor, fitted.entries.seen_columns, request, moment)

    def recommend_to(
        self,
        path: str | Path,
        rows: Iterable[Any] | None = None,
        n: int = 10,
        **options: Unpack[RequestOptions],
    ) -> int:
        """Write the n best columns of some rows, or of all rows (None), to a file in bounded
        memory.

        The name ends in .csv, .tsv, .jsonl or .parquet. A line has the row, the rank from 1, the
        column, the prediction and, if the model has them, the probabilities `presence`, `liked` and
        `distribution` of `recommend`. The last is a list, whose items are joined with bars in
        delimited text. The keyword arguments are those of `recommend`.

        Returns
        -------
        The number of lines.
        """
        if rows is not None and is_label(rows, self.entries_.rows):
            rows = [rows]
        request = Request(n=n, **options)
        return Recommendations.of(self.entries_, self.make_ranker(request), rows, request).write(
            path
        )

    def similar_rows(self, row: Any, n: int = 10) -> Ranking:
        """Return the n rows most similar to a row, and their similarities.

        These are the cosines of their latents; for interactions, those of their entries.
        """
        return self._find_similar("row", row, n, NOTHING)

    def similar_columns(
        self, column: Any, n: int = 10, *, min_entries: int | None = None
    ) -> Ranking:
        """Return the n columns most similar to a column, and their similarities, as in
        `similar_rows`.

        min_entries: leave out columns with fewer entries, whose similarities are chance; by default
            5, or half the median over all columns if that is smaller.
        """
        return self._find_similar(
            "column", column, n, find_rare_columns(self.entries_, min_entries)
        )

    def _find_similar(self, axis: Axis, label: Any, n: int, barred: IndexArray) -> Ranking:
        entries, predictor = self.entries_, self.predictor_
        if self.scale_.is_interactions:
            ranking = find_similar(entries, axis, label, n, barred=barred)
        else:
            latents = {"row": predictor.rows, "column": predictor.columns}[axis]
            directions, labels = predictor.directions(latents), entries.get_labels(axis)
            ranking = most_similar(directions, labels, label, n, barred=barred)
        row, column = entries.train.form.name_ids_beside(FRAME_FIELDS)
        if axis == "row":
            return ranking.describe(entries.row_names, (column, row, "cosine"))
        return ranking.describe(entries.column_names, (row, column, "cosine"))

    def explain(self, row: Any, column: Any, n: int = 5, *, axis: Axis = "row") -> Explanation:
        """Return the n entries of the row that moved its prediction for the column the most.

        The effect of an entry is the prediction with all entries minus the prediction without this
        entry. Models that solve for factors also read entries over new columns (area IV), which
        then have effects; in other models these describe nothing and have none. In a row of more
        than 256 entries, only the most prominent ones are tried. For a model that was fitted with
        features, the features of the row are left out in turn, too. The attribute `presence` has
        the entries that raise the probability that the row takes the column at all. For
        interactions, all effects are those on this probability.

        Parameters
        ----------
        row, column : the labels of the pair.
        n : the largest number of entries and of features to return.
        axis : "row" explains by the entries of the row, "column" by the entries of the column.
        """
        check_choice("axis", axis, get_args(Axis))
        fitted, entries, is_row = self._require_fitted(), self.entries_, axis == "row"
        self._areas.require(axis, f"explain by the entries of a {axis}")
        row_at, column_at = entries.rows.positions([row]), entries.columns.positions([column])
        explained, targets = (row_at, column_at) if is_row else (column_at, row_at)
        read = entries.all_entries(axis, explained)
        return explain_predictions(
            fitted.rankers, fitted.predictor, axis, read, int(explained[0]), targets, n
        )[0]

    def describe_choice(self) -> str | None:
        """Return a sentence if rows choose what they like, so that predictions for other cells are
        too high; else None.

        It compares the values of entries with the probability that they exist, which their rows'
        other entries give. A model without a presence part, or calibrated on asked cells, has
        nothing to say.
        """
        fitted = self._require_fitted()
        if "asked" in fitted.parts:
            return None
        return describe_choice(fitted.rankers, fitted.predictor)

    def complete(self, *, at: Any = None) -> FloatArray:
        """Return the whole matrix, (rows, columns): observed entries as they are, all others
        predicted.

        `at` is the time to predict for, as in `predict`.
        """
        return complete_array(self.entries_, self.predictor_at(at))

    def complete_frame(self, *, at: Any = None) -> Any:
        """Return every missing entry as a long polars frame with the column names of the training
        data."""
        return complete_frame(self.entries_, self.predictor_at(at))

    def complete_to(self, path: str | Path, *, at: Any = None) -> int:
        """Write every missing entry to a file in bounded memory; return their number.

        The name ends in .csv, .tsv, .jsonl or .parquet. A line has the row, the column and the
        value.
        """
        return complete_to(self.entries_, self.predictor_at(at), path)

    def save(self, path: str | Path) -> None:
        """Write the model to one file, completely or not at all; a model that would not open is
        refused.

        `load` maps the file into memory if its name ends in ".model" or it takes more than 2 GiB.
        The same entries, settings and seed give the same bytes: the duration of training and the
        number of threads are not stored.
        """
        entries, packed = self.entries_, self._require_fitted().pack()
        n_bytes = sum(tensor.nbytes for part in packed.values() for tensor in part.tensors.values())
        parts = (
            pack_entries(entries, is_mapped=is_mapped(path, entries.train.nbytes + n_bytes))
            | packed
        )
        content = {
            "class": type(self).__name__,
            "settings": self.settings.to_dict(),
            "chosen": sorted(self._chosen),
            "history": self.history_.drop_times().to_dict(),
        } | {name: part.content for name, part in parts.items()}
        tensors = {name: tensor for part in parts.values() for name, tensor in part.tensors.items()}
        try:
            self.from_stored(
                json.loads(encode_json(make_header("model", content)))["content"], tensors
            )
        except BadModelFile as error:
            raise BadModelFile(
                f"this {type(self).__name__} cannot be saved, as it would not open: {error}"
            ) from error
        write_file(path, kind="model", content=content, tensors=tensors)

    @classmethod
    def from_stored(cls, content: dict[str, Any], tensors: dict[str, Array]) -> Self:
        """Return the model that `save` wrote; contents that no model could have raise
        `BadModelFile`."""
        described = _CONTENT.read(content)
        with refuse_stored("settings"):
            model = cls(**described["settings"])
        settings, chosen_names = model.settings.to_dict(), described["chosen"]
        if not settings.keys() >= set(chosen_names):
            raise BadModelFile(
                f"the stored choice must name settings; got {reprlib.repr(chosen_names)}"
            )
        model._chosen, model._given = (
            {name: settings[name] for name in chosen_names},
            model._given.difference(chosen_names),
        )
        entries = unpack_entries(content, tensors, model._areas, takes_features=cls.takes_features)
        model.history_ = History.from_dict(described["history"])
        with refuse_stored(cls.__name__):
            if entries.scale.is_interactions:
                predictor: Predictor = InteractionPredictor.of_entries(entries)
            else:
                predictor = model._load_predictor(entries, described["learned"], tensors)
        parts = unpack_parts(described["parts"], tensors, entries.as_read, predictor)
        model._fitted = Fitted(entries, predictor, parts, model._choose_rank_by(parts))
        check_predictions(entries, model._fitted.predictor)
        return model

    def predictor_at(self, at: Any = None) -> Predictor:
        """Return the predictor for a time; the default is that of the latest training entry."""
        return self.predictor_.at(self._read_times(at))

    @property
    def asked_(self) -> dict[str, float] | None:
        """How asked cells calibrated the model: their number, the line, and errors on them; None
        without any.

        A prediction for any cell is the learned one moved by `level`, with deviations from the mean
        times `slope`.
        """
        asked: Any = self._require_fitted().parts.get("asked")
        return None if asked is None else asked.describe()

    @property
    def has_drift(self) -> bool:
        """Whether predictions depend on the time they are for."""
        return "drift" in self._require_fitted().parts

    @property
    def rankers_(self) -> Rankers:
        """Makes the rankers of columns, also for rows that are folded in."""
        return self._require_fitted().rankers

    @property
    def row_labels_(self) -> Array:
        """The labels of all known rows."""
        return self.entries_.rows.array

    @property
    def column_labels_(self) -> Array:
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
        """The latents of all rows, (rows, latent), in the order of `row_labels_`, without effects
        and means."""
        return self.predictor_.factors.drop_beside(self.predictor_.rows)

    @property
    def column_latents_(self) -> LatentArray:
        """The latents of all columns, (columns, latent), in the order of `column_labels_`."""
        return self.predictor_.factors.drop_beside(self.predictor_.columns)

    @property
    def gives_distribution(self) -> bool:
        """Whether the model predicts distributions, and so intervals."""
        return self.predictor_.readout.gives_distribution

    @property
    def support_(self) -> FloatArray:
        """The values that the columns of a distribution stand for: the levels, or the mean values
        of the bins."""
        return self.predictor_.readout.support

    @property
    def chosen_on_entries_(self) -> dict[str, float]:
        """Quantities beside the best epoch that were chosen on held-out entries, those of the
        presence part here.

        `presence_ndcg` and `popularity_ndcg` are the NDCG@10 of both rankings on these entries.
        """
        parts = self._require_fitted().parts.values()
        return {name: number for part in parts for name, number in part.describe_choice().items()}

    def __repr__(self) -> str:
        """Return the constructor call or, once fitted, what the model knows, its errors, and its
        settings.

        Settings that no fit chooses are shown where they differ from their defaults.
        """
        name = type(self).__name__
        values = self.settings_class.from_names(self.own_settings).to_dict()
        changes = ", ".join(
            f"{setting.name}={values[setting.name]!r}"
            for setting in list_settings(self.settings_class)
            if values[setting.name] != setting.default
        )
        if not self.is_fitted:
            return f"{name}({changes})"
        entries, n_chosen = self.entries_, len(self._chosen)
        size = f"{format_count(len(entries.rows))} x {format_count(len(entries.columns))}"
        facts = [size, f"{format_count(entries.n_entries)} entries", describe_errors(self.history_)]
        choice = f"; {format_count(n_chosen)} chosen (see chosen_)" if n_chosen else ""
        lines = [
            f"{name}({', '.join(filter(None, facts))})",
            f"  scale: {entries.scale}",
            f"  settings: {changes or 'all by default'}{choice}",
        ]
        for axis, features in (("row", entries.row_features), ("column", entries.column_features)):
            if features is not None:
                columns = [f"{column.name} ({column.kind})" for column in features.encoding.columns]
                shown = ", ".join(columns[:_MOST_FEATURES])
                if len(columns) > _MOST_FEATURES:
                    shown += f" and {format_count(len(columns) - _MOST_FEATURES)} more"
                lines.append(f"  {axis} features: {shown}")
        return "\n".join(lines)

    # Internals.

    def _with_state(self, fitted: Fitted) -> Self:
        model = copy.copy(self)
        model._fitted = fitted
        return model

    def _fold_in(
        self,
        histories: Sequence[RowHistory],
        features: ManyFeatures | None,
        *,
        single: bool,
        ordered: bool,
    ) -> FoldedRows:
        fitted = self._require_fitted()
        self._areas.require("row", "predict for new rows")
        return FoldedRows.of(
            fitted.rankers, fitted.predictor, histories, features, single=single, ordered=ordered
        )

    def _read_distributions(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        unknown: Unknown,
        at: Any,
        read: Callable[[PredictiveDistribution], FloatArray],
    ) -> FloatArray:
        """Return `read` of the predictive distributions of pairs of labels, at a time."""
        check_has_values(self.scale_)
        if not self.gives_distribution:
            raise BadSetting(f"{type(self).__name__} {NO_DISTRIBUTION}")
        return self.ask(
            rows,
            columns,
            at,
            unknown,
            lambda predictor, *pairs: read(predictor.distribution(*pairs)),
        )

    def _read_times(self, at: Any, n: int | None = None) -> int | TimeArray | None:
        """Return a time as Unix seconds, or n of them; a model that ignores times refuses one."""
        if at is None:
            return None
        if not self._learns_times:
            raise BadSetting(
                f"this {type(self).__name__} was fitted without times and cannot answer for at={reprlib.repr(at)}",
                hint=Hint("fit it with times='auto'", "fit it with --set times=auto"),
            )
        several = n is not None and isinstance(at, list | tuple | np.ndarray)
        return parse_times(at, n).seconds if several else parse_time(at)
