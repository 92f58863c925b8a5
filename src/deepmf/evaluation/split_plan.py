"""How a comparison splits a matrix: folds, each the test once, or random splits into areas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deepmf.data.splits import each_fold, split_areas
from deepmf.errors import BadSplit
from deepmf.evaluation.problem import Problem
from deepmf.matrix.matrix import ObservedMatrix

TEST_SHARE = 0.2  # of each area


@dataclass(frozen=True)
class SplitPlan:
    """The splits that every model of a comparison is measured on.

    Without `areas`, the entries fall into `folds`, each the test once. With `areas`, there are as many random splits in
    which some rows and columns are new. Validation entries come from what is left for training.
    """

    folds: int = 5
    areas: bool = False
    new_rows: float = 0.2
    new_columns: float = 0.2
    validation: float = 0.05
    seed: int = 0

    def problems(self, matrix: ObservedMatrix) -> Iterator[Problem]:
        """Yield the problem of each split; the same for the same matrix, in any process."""
        if not self.areas:
            splits = each_fold(matrix, self.folds, validation=self.validation, seed=self.seed)
            yield from map(Problem.of_split, splits)
            return
        if isinstance(self.folds, bool) or not isinstance(self.folds, int) or self.folds < 1:
            raise BadSplit(f"folds must be a whole number of at least 1, of random splits here; got {self.folds!r}")
        for number in range(self.folds):
            split = split_areas(
                matrix,
                new_rows=self.new_rows,
                new_columns=self.new_columns,
                train=1.0 - self.validation - TEST_SHARE,
                validation=self.validation,
                test=TEST_SHARE,
                seed=self.seed + number,
            )
            yield Problem.of_areas(split)

    @property
    def part(self) -> str:
        """What one of the splits is called."""
        return "split" if self.areas else "fold"

    def __str__(self) -> str:
        if not self.areas:
            return f"{self.folds} folds, each the test once; seed {self.seed}"
        new = f"{self.new_rows:g} of the rows and {self.new_columns:g} of the columns new"
        how_many = f"{self.folds} random split{'s' * (self.folds > 1)}"
        return f"{how_many} with {new}, {TEST_SHARE:.0%} of each area the test; seeds from {self.seed}"
