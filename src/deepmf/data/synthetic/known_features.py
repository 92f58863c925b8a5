"""What is known of generated rows and columns: features that explain a part of their factors and effects."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from deepmf.data.random_stream import RandomStream
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labels

OCCUPATIONS = ("artist", "clerk", "cook", "engineer", "farmer", "nurse", "student", "teacher")
GENRES = ("Comedy", "Crime", "Documentary", "Drama", "Horror", "Musical", "Sci-Fi", "Western")
# Every second film has a second genre.
_SECOND_GENRE = 0.5


class KnownFeatures(NamedTuple):
    """Features of all rows, or of all columns, and what they say of factors and effects, both of variance 1."""

    features: Features
    factors: FloatArray  # (rank, labels)
    effects: FloatArray  # (labels,)


def features_of_rows(rows: Labels, *, rank: int, seed: int) -> KnownFeatures:
    """Return an age, which makes a person's effect, and an occupation, which makes tastes."""
    dice = RandomStream(seed, 4)
    ages, jobs = _whole(dice, len(rows), 18, 80), _whole(dice, len(rows), 0, len(OCCUPATIONS))
    tastes = dice.normals(rank * len(OCCUPATIONS)).reshape(rank, -1)
    columns: dict[str, Any] = {"age": ages, "occupation": [OCCUPATIONS[job] for job in jobs.tolist()]}
    return KnownFeatures(Features(rows.array, columns, kinds={"age": "number"}), tastes[:, jobs], _standard(ages))


def features_of_columns(columns: Labels, *, rank: int, seed: int) -> KnownFeatures:
    """Return a year, which makes a film's effect, and one or two genres, which make what it is like."""
    dice = RandomStream(seed, 5)
    count, n_genres = len(columns), len(GENRES)
    years, first = _whole(dice, count, 1950, 2010), _whole(dice, count, 0, n_genres)
    second = (first + _whole(dice, count, 1, n_genres)) % n_genres  # another one
    both = dice.uniforms(count) < _SECOND_GENRE
    qualities = dice.normals(rank * n_genres).reshape(rank, -1)
    factors = np.where(both, (qualities[:, first] + qualities[:, second]) * 0.5**0.5, qualities[:, first])
    genres = [
        [GENRES[one], GENRES[other]] if two else [GENRES[one]]
        for one, other, two in zip(first.tolist(), second.tolist(), both.tolist(), strict=True)
    ]
    known = Features(columns.array, {"year": years, "genres": genres}, kinds={"year": "number", "genres": "list"})
    return KnownFeatures(known, factors, _standard(years))


def _whole(dice: RandomStream, count: int, low: int, high: int) -> IndexArray:
    """Draw whole numbers from low to high - 1."""
    numbers: IndexArray = low + (dice.uniforms(count) * (high - low)).astype(np.int64)
    return numbers


def _standard(numbers: IndexArray) -> FloatArray:
    spread = float(numbers.std()) or 1.0
    standard: FloatArray = (numbers - numbers.mean()) / spread
    return standard
