"""The parts of a model beside its predictor: drift with the times of entries, and the presence of
entries.

    class ALS(Recommends, FactorModel): ...

They are fitted after the model has learned to predict.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from deepmf.errors import BadEntries, BadSetting
from deepmf.models.estimator import Estimator, refuse_unsolvable
from deepmf.models.fitted import Fitted
from deepmf.models.fitting import check_alike, identify_training
from deepmf.training.history import History
from deepmf.training.runtime import Runtime, limit_threads
from deepmf.training.settings import RecommendationSettings

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.fitting import Prepared
    from deepmf.recommend.next_ridge import NextRidge
    from deepmf.recommend.presence import Presence
    from deepmf.recommend.request import RankBy


# Entries from which on a GPU, if there is one, fits the presence part of a model without a device
# of its own.
_MANY_ENTRIES = 1 << 17


class Recommends(Estimator):
    """Learns drift from the times of entries, and has a presence part, by which columns are ranked
    by relevance.

    It also fits interactions, for which the presence part is all.
    """

    settings: RecommendationSettings

    @property
    def _learns_times(self) -> bool:
        return self.settings.times is not None

    def _fit_interactions(self, prepared: Prepared) -> Self:
        """Fit the parts alone; an error leaves the model as it was."""
        if self.settings.presence is None:
            return super()._fit_interactions(prepared)
        from deepmf.models.interactions import InteractionPredictor
        from deepmf.nn.ranks import find_ranks

        entries = prepared.entries
        if find_ranks() is not None:
            check_alike(
                identify_training(type(self).__name__, self.settings, entries, prepared.held_out)
            )
        if entries.train.n_entries == entries.train.shape[0] * entries.train.shape[1]:
            raise BadEntries("there is nothing to learn: every row has an entry in every column")
        model = copy.copy(self)
        model.history_, model._chosen = History(), {}
        if "rank_by" not in self._given or self.settings.rank_by == "value":
            model._chosen = {"rank_by": "relevance"}
            model.settings = replace(model.settings, rank_by="relevance")
        model._fitted = model._fit_parts(
            Fitted(entries, InteractionPredictor.of(entries)), prepared
        )
        self.__dict__.update(model.__dict__)
        return self

    def _choose_parts(self, train: ObservedMatrix) -> dict[str, Any]:
        from deepmf.recommend.ranker import choose_order

        has_presence = "presence" not in self._given or self.settings.presence is not None
        return {"presence": "auto", "rank_by": choose_order(train) if has_presence else "value"}

    def _fit_parts(self, fitted: Fitted, prepared: Prepared) -> Fitted:
        if self._learns_times and fitted.entries.train.has_values:
            from deepmf.scoring.drift_fit import fit_drift

            drift = fit_drift(
                fitted.entries.train, fitted.predictor, prepared.placed, seed=self.settings.seed
            )
            fitted = replace(fitted, predictor=replace(fitted.predictor, drift=drift))
        kind = self.settings.presence
        return fitted if kind is None else self._fit_presence(fitted, prepared, kind)

    def _fit_presence(self, fitted: Fitted, prepared: Prepared, kind: str) -> Fitted:
        from deepmf.recommend.next_fit import fit_order
        from deepmf.recommend.presence_fit import fit_presence

        settings, n_entries = self.settings, fitted.entries.train.n_entries
        name = self._device or ("auto" if n_entries >= _MANY_ENTRIES else "cpu")
        folds_in, device, seed = self._areas.covers_new("row"), Runtime(name).device, settings.seed
        known, validation = (fitted.entries, fitted.predictor), prepared.placed
        following = recency = None
        with limit_threads(name, n_entries=n_entries), refuse_unsolvable():
            found = fit_presence(
                *known, kind, validation, folds_in=folds_in, seed=seed, device=device
            )
            if found is not None and folds_in:
                found, recency, following = fit_order(
                    *known, found, validation, seed=seed, device=device
                )
        if "presence" not in self._given:
            chosen = None if found is None else found.model.kind
            self.settings, self._chosen = (
                replace(settings, presence=chosen),
                self._chosen | {"presence": chosen},
            )
        if self.settings.rank_by == "next" and following is None:
            raise BadSetting(
                "rank_by='next' needs rows whose entries have times or an order, as ObservedMatrix.from_sequences gives"
            )
        if (
            "rank_by" not in self._given
            and self.settings.rank_by == "relevance"
            and following
            and following.is_default
        ):
            self.settings, self._chosen = (
                replace(self.settings, rank_by="next"),
                self._chosen | {"rank_by": "next"},
            )
        fitted = replace(fitted, presence=found, recency=recency, following=following)
        return replace(fitted, rank_by=self._choose_rank_by(found, following))

    def _choose_rank_by(self, presence: Presence | None, following: NextRidge | None) -> RankBy:
        if presence is None or self.settings.rank_by == "value":
            return "value"
        return "next" if following is not None and self.settings.rank_by == "next" else "relevance"
