"""What another model would change in the list of one row."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Unpack

from deepmf.files import polars
from deepmf.models.base import Model
from deepmf.recommend.ranking import Ranking
from deepmf.recommend.request import RequestOptions


@dataclass(frozen=True)
class ListChange:
    """What would change in the list of one row.

    before, after: the rankings of the row by both models.
    kept, gone, new: columns of both lists, of the first alone, and of the second alone.
    """

    row: Any
    before: Ranking
    after: Ranking
    kept: list[Any]
    gone: list[Any]
    new: list[Any]

    def to_frame(self) -> Any:
        """Return a polars frame with a line for each column: its places and predictions in both
        lists."""
        before, after = (
            dict(
                zip(
                    ranking.labels.tolist(),
                    enumerate(ranking.values.tolist(), start=1),
                    strict=True,
                )
            )
            for ranking in (self.before, self.after)
        )
        absent = (None, None)
        lines = [
            (label, *before.get(label, absent), *after.get(label, absent))
            for label in (*before, *self.new)
        ]
        names = ["column", "place_before", "value_before", "place_after", "value_after"]
        return polars.DataFrame(lines, names, orient="row", infer_schema_length=None)

    def list_cells(self) -> list[list[str]]:
        """Return a line for each place: the columns of both lists, each with what would happen to
        it."""
        before, after = self.before.labels.tolist(), self.after.labels.tolist()
        moved = {
            label: f" ({rise:+d})"
            for label in self.kept
            if (rise := before.index(label) - after.index(label))
        }
        words_of_lists = (
            dict.fromkeys(self.gone, " (gone)"),
            dict.fromkeys(self.new, " (new)") | moved,
        )
        shown = []
        for ranking, words in zip((self.before, self.after), words_of_lists, strict=True):
            names = (ranking.labels if ranking.names is None else ranking.names).tolist()
            labelled = zip(ranking.labels.tolist(), names, strict=True)
            shown.append([f"{name or label}{words.get(label, '')}" for label, name in labelled])
        pairs = itertools.zip_longest(*shown, fillvalue="")
        return [[str(place), *pair] for place, pair in enumerate(pairs, start=1)]

    def describe(self, before: str, after: str) -> str:
        """Return how much of the list would stay, with the names of both models."""
        n_kept, n = len(self.kept), self.after.labels.size
        return f"with {after} instead of {before}, {n_kept} of {n} columns would stay"


def compare_lists(
    before: Model, after: Model, row: Any, n: int = 10, **options: Unpack[RequestOptions]
) -> ListChange:
    """Return what would change for one row if another model made its list; options are those of
    `recommend`.

    >>> from deepmf import ALS, Means
    >>> from deepmf.datasets import generate
    >>> ratings = generate(60, 40, density=0.3, seed=0).matrix
    >>> change = compare_lists(Means(seed=0).fit(ratings), ALS(seed=0).fit(ratings), ratings.row_labels[0], n=5)
    >>> len(change.kept) + len(change.new) == len(change.after.labels)
    True
    """
    ranking_before, ranking_after = (
        model.recommend(row, n, **options) for model in (before, after)
    )
    first, second = ranking_before.labels.tolist(), ranking_after.labels.tolist()
    common_labels, gone = (
        [label for label in first if label in second],
        [label for label in first if label not in second],
    )
    return ListChange(
        row,
        ranking_before,
        ranking_after,
        common_labels,
        gone,
        [label for label in second if label not in first],
    )
