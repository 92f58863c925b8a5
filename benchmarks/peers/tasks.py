"""The tasks: which entries are given and which are asked for, on public ratings and on
scikit-learn's tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from movielens_features import feature_arrays
from scale import NOISE, RANK, SEED, SHAPES
from workload import limit_row_entries

from deepmf.data import AreaSplit, Split, split_areas, split_entries
from deepmf.data.read import read_matrix
from deepmf.data.synthetic import STARS
from deepmf.datasets import fetch, folder, generate, load, load_split
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.matrix.scale import Scale
from peers.one_hot import features_of
from peers.problem import Asked, Entries, Problem
from peers.ranking import (
    RankingProblem,
    generated as generated_ranking,
    known_rows,
    load_known,
    load_new,
    published_lists,
)

HIDDEN = 0.2  # of a table's cells
FOLD = 20_000  # entries, of the published folds of ml-100k
COUNTS = (0, 1, 2, 5, 10, 20)
SIZES = (100_000, 1_000_000, 10_000_000)  # entries that are known, of tasks that grow
ASKED = 100_000  # entries, whatever the size


@dataclass(frozen=True)
class Task:
    """A task by its name; `kinds` say which peers it is for.

    "known": all rows and columns are; "new": some come later; "features": and all have features;
    "table": cells; "size": known ones again, for what a number of entries costs; "ranking": lists
    of columns; "wide": of many.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    seeds: tuple[int, ...]
    problem: Callable[[int], Problem | RankingProblem]


def of_split(split: Split, matrix: ObservedMatrix) -> Problem:
    """Return the problem of a split whose rows and columns are all known."""
    train, validation, test = (
        Entries.of(part, matrix.rows, matrix.columns) for part in vars(split).values()
    )
    groups = np.full(test.rows.size, "I")
    return Problem(
        shape=matrix.shape,
        levels=_levels(matrix),
        train=train,
        validation=validation,
        asked=[Asked("I", Entries.none(), test, groups)],
    )


def of_areas(split: AreaSplit, matrix: ObservedMatrix) -> Problem:
    """Return the problem of a split by areas: all that is known, then new rows and columns with few
    entries.

    In "new rows, 5" at most five entries of each new row are known and no other entry of areas II
    to IV; the entries asked for are those of area II, whatever the number.
    """

    def positions(part: ObservedMatrix) -> Entries:
        return Entries.of(part, matrix.rows, matrix.columns)

    def mirror(part: ObservedMatrix) -> Entries:
        return Entries.of(part, matrix.columns, matrix.rows).mirror()

    tests = {area: positions(split.test[area]) for area in AREAS}
    every = Entries.join(*tests.values())
    areas = np.concatenate([np.full(test.rows.size, area) for area, test in tests.items()])
    asked = [Asked("areas", positions(split.extension), every, areas)]
    rows, columns = _described_rows(split), _described_columns(split)
    for count in COUNTS:
        of_rows = positions(limit_row_entries(rows, count, seed=0)) if count else Entries.none()
        of_columns = mirror(limit_row_entries(columns, count, seed=0)) if count else Entries.none()
        asked += [
            _make_question(f"new rows, {count}", of_rows, tests["II"]),
            _make_question(f"new columns, {count}", of_columns, tests["III"]),
            _make_question(f"both, {count}", Entries.join(of_rows, of_columns), tests["IV"]),
        ]
    return Problem(
        matrix.shape, _levels(matrix), positions(split.train), positions(split.validation), asked
    )


def _make_question(name: str, extension: Entries, test: Entries) -> Asked:
    return Asked(name, extension, test, np.full(test.rows.size, name))


def _described_rows(split: AreaSplit) -> ObservedMatrix:
    """Return the entries of new rows in trained columns."""
    extension, train = split.extension, split.train
    new = np.flatnonzero(train.rows.find(extension.row_labels) < 0)
    return extension.take(new, np.flatnonzero(train.columns.find(extension.column_labels) >= 0))


def _described_columns(split: AreaSplit) -> ObservedMatrix:
    """Return the entries of new columns in trained rows, with rows and columns swapped."""
    extension, train = split.extension, split.train
    new = np.flatnonzero(train.columns.find(extension.column_labels) < 0)
    own = extension.take(np.flatnonzero(train.rows.find(extension.row_labels) >= 0), new)
    rows, columns, values = own.entries()
    return ObservedMatrix.from_entries(columns, rows, values, own.scale)


def _levels(matrix: ObservedMatrix) -> npt.NDArray[np.float64]:
    return (
        np.empty(0)
        if matrix.scale.levels is None
        else np.asarray(matrix.scale.levels, dtype=np.float64)
    )


def published_fold(seed: int) -> Problem:
    """Return fold u1 (seed 0) to u5 of ml-100k: as its publisher's script does, 20,000 lines in
    their order."""
    lines = np.loadtxt(fetch("ml-100k"), dtype=np.int64, usecols=(0, 1, 2))
    matrix = load("ml-100k")
    test = np.zeros(len(lines), dtype=bool)
    test[seed * FOLD : (seed + 1) * FOLD] = True
    known, asked = (_of_lines(lines[part], matrix) for part in (~test, test))
    parts = split_entries(known, train=0.95, validation=0.05, test=0.0, seed=0)
    return of_split(Split(parts.train, parts.validation, asked), matrix)


def _of_lines(lines: npt.NDArray[np.int64], matrix: ObservedMatrix) -> ObservedMatrix:
    return ObservedMatrix.from_entries(
        lines[:, 0],
        lines[:, 1],
        lines[:, 2].astype(np.float64),
        matrix.scale,
        row_labels=matrix.row_labels,
        column_labels=matrix.column_labels,
    )


def authors(seed: int) -> Problem:
    """Return the split of ml-1m that the authors of DMF-D published."""
    return of_split(load_split("ml-1m"), load("ml-1m"))


def random_split(name: str, seed: int) -> Problem:
    """Return 90 / 10 of the entries at random; of the 90, 2 are for validation."""
    matrix = load(name)
    return of_split(split_entries(matrix, train=0.88, validation=0.02, test=0.1, seed=seed), matrix)


def areas(name: str, seed: int) -> Problem:
    """Return the areas of a set, a fifth of its rows and columns new, with the features of all."""
    matrix = load(name)
    problem = of_areas(split_areas(matrix, new_rows=0.2, new_columns=0.2, seed=seed), matrix)
    return Problem(**vars(problem) | features_of(name, matrix))


def generated(seed: int) -> Problem:
    """Return the areas of a small generated matrix, without features."""
    matrix = generate(150, 100, density=0.2, named=False, seed=0).matrix
    return of_areas(split_areas(matrix, new_rows=0.2, new_columns=0.2, seed=seed), matrix)


def of_size(n_entries: int, seed: int) -> Problem:
    """Return generated entries of a shape in `scale.py`: 2 % are for validation, and as many asked
    for at any size."""
    n_rows, n_columns = SHAPES[n_entries]
    drawn = generate(
        n_rows,
        n_columns,
        n_entries=n_entries + ASKED,
        rank=RANK,
        noise=NOISE,
        named=False,
        seed=SEED + seed,
    ).matrix
    every = Entries(
        drawn.entry_rows.astype(np.int64),
        drawn.by_row.columns.astype(np.int64),
        drawn.values.astype(np.float64),
    )
    order = np.random.default_rng(seed).permutation(n_entries + ASKED)
    parts = np.split(order, [ASKED, ASKED + n_entries // 50])
    test, validation, train = (every.take(np.sort(which)) for which in parts)
    asked = [Asked("I", Entries.none(), test, np.full(ASKED, "I"))]
    return Problem((n_rows, n_columns), np.array(STARS), train, validation, asked)


def chosen_coats() -> ObservedMatrix:
    """Return the ratings of Coat that people chose to give."""
    return read_matrix(folder() / "coat" / "chosen.csv", scale=Scale(STARS))


def coat(seed: int) -> Problem:
    """Return 75 / 5 / 20 of the chosen ratings of Coat at random."""
    matrix = chosen_coats()
    return of_split(split_entries(matrix, train=0.75, validation=0.05, test=0.2, seed=seed), matrix)


def coat_lists(seed: int) -> RankingProblem:
    """Return the same split of Coat for lists."""
    return known_rows(chosen_coats(), seed)


def genres(seed: int) -> Problem:
    """Return the mean rating that each person of ml-100k gives to each genre."""
    matrix = load("ml-100k")
    films = feature_arrays("ml-100k")
    listed = dict(zip(films["film"].tolist(), films["genres"].tolist(), strict=True))
    of_films = [listed[film].split("|") for film in matrix.column_labels.tolist()]
    names = sorted({genre for genres in of_films for genre in genres})
    flags = np.array([[name in genres for name in names] for genres in of_films], dtype=np.float64)
    ratings = matrix.to_array()
    counts = np.isfinite(ratings) @ flags
    sums = np.nan_to_num(ratings) @ flags
    return of_table(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), seed)


def table(name: str, seed: int) -> Problem:
    """Return one of scikit-learn's tables."""
    from sklearn import datasets

    return of_table(getattr(datasets, f"load_{name}")().data.astype(np.float64), seed)


def of_table(cells: npt.NDArray[np.float64], seed: int) -> Problem:
    """Return a table with a fifth of its cells hidden; errors count in columns' spreads."""
    hidden = np.random.default_rng(seed).random(cells.shape) < HIDDEN
    observed = np.isfinite(cells)
    spreads = np.nanstd(cells, axis=0)
    known, test = (
        _cells(cells, observed & ~hidden),
        _cells(cells, observed & hidden & (spreads > 0)),
    )
    asked = [Asked("cells", Entries.none(), test, np.full(test.rows.size, "cells"))]
    return Problem(
        cells.shape,
        np.empty(0),
        known,
        Entries.none(),
        asked,
        units=np.where(spreads > 0, spreads, 1.0),
    )


def _cells(cells: npt.NDArray[np.float64], which: npt.NDArray[np.bool_]) -> Entries:
    rows, columns = np.nonzero(which)
    return Entries(rows, columns, cells[rows, columns])


FIVE = (0, 1, 2, 3, 4)
TABLES = ("iris", "wine", "breast_cancer", "diabetes", "digits")

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("generated", "a generated matrix, areas", ("new",), (0,), generated),
        Task("ml-100k-folds", "MovieLens-100K, u1 to u5", ("known",), FIVE, published_fold),
        Task("ml-1m-authors", "MovieLens-1M, the authors' split", ("known",), (0,), authors),
        Task(
            "ml-1m-random",
            "MovieLens-1M, 90 / 10",
            ("known",),
            FIVE,
            partial(random_split, "ml-1m"),
        ),
        Task(
            "ml-100k-areas",
            "MovieLens-100K, areas",
            ("new", "features"),
            FIVE,
            partial(areas, "ml-100k"),
        ),
        Task(
            "ml-1m-areas", "MovieLens-1M, areas", ("new", "features"), FIVE, partial(areas, "ml-1m")
        ),
        *(
            Task(
                f"size-{size}",
                f"{size:,} generated entries",
                ("size",),
                (0,),
                partial(of_size, size),
            )
            for size in SIZES
        ),
        Task(
            "generated-ranking",
            "a generated matrix, ranking new rows",
            ("ranking",),
            (0,),
            generated_ranking,
        ),
        *(
            Task(
                f"{name}-ranking-{rows}",
                f"{title}, ranking {rows} rows",
                ("ranking",),
                seeds,
                partial(make, name),
            )
            for name, title, seeds in (
                ("ml-100k", "MovieLens-100K", (0, 1, 2)),
                ("ml-1m", "MovieLens-1M", (0,)),
            )
            for rows, make in (("known", load_known), ("new", load_new))
        ),
        Task(
            "gowalla",
            "Gowalla, LightGCN's split",
            ("wide",),
            (0,),
            partial(published_lists, "gowalla"),
        ),
        *(
            Task(f"table-{name}", f"{name}, 20 % hidden", ("table",), (0, 1), partial(table, name))
            for name in TABLES
        ),
        Task("coat", "Coat, chosen ratings", ("known",), (0,), coat),
        Task("coat-ranking-known", "Coat, ranking known rows", ("ranking",), (0,), coat_lists),
        Task("table-genres", "mean ratings of genres, 20 % hidden", ("table",), (0,), genres),
    )
}
