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
from deepmf.models.estimator import Estimator
from deepmf.models.fitted import Fitted
from deepmf.models.fitting import check_alike, identify_training
from deepmf.models.parts import Parts
from deepmf.recommend.next_ridge import NextRidge
from deepmf.recommend.presence import Presence
from deepmf.recommend.request import RankBy
from deepmf.training.history import History
from deepmf.training.settings import RecommendationSettings

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.fitting import Prepared


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
        from deepmf.nn.group import find_ranks

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
            Fitted(entries, InteractionPredictor.of_entries(entries)), prepared
        )
        self.__dict__.update(model.__dict__)
        return self

    def _choose_parts(self, train: ObservedMatrix) -> dict[str, Any]:
        from deepmf.recommend.ranker import choose_order

        has_presence = "presence" not in self._given or self.settings.presence is not None
        return {"presence": "auto", "rank_by": choose_order(train) if has_presence else "value"}

    def _choose_order(self, fitted: Fitted) -> Fitted:
        if self.settings.presence is None:
            return fitted
        presence, following = (fitted.parts.get(name) for name in ("presence", "next"))
        choices: dict[str, Any] = {}
        if "presence" not in self._given:
            choices["presence"] = presence.model.kind if isinstance(presence, Presence) else None
        if self.settings.rank_by == "next" and following is None:
            raise BadSetting(
                "rank_by='next' needs rows whose entries have times or an order, as ObservedMatrix.from_sequences gives"
            )
        prefers_next = isinstance(following, NextRidge) and following.is_default
        if "rank_by" not in self._given and self.settings.rank_by == "relevance" and prefers_next:
            choices["rank_by"] = "next"
        self.settings, self._chosen = replace(self.settings, **choices), self._chosen | choices
        return replace(fitted, rank_by=self._choose_rank_by(fitted.parts))

    def _choose_rank_by(self, parts: Parts) -> RankBy:
        if "presence" not in parts or self.settings.rank_by == "value":
            return "value"
        return "next" if "next" in parts and self.settings.rank_by == "next" else "relevance"
