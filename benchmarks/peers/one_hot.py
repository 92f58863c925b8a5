"""Features of MovieLens as zeros and ones, the one encoding that every peer is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from movielens_features import feature_arrays

from deepmf.matrix.matrix import ObservedMatrix
from peers.problem import Arrays, OneHot

# Where the next group begins; ml-1m gives its users' ages in these groups.
AGES = (18, 25, 35, 45, 50, 56)
YEARS = (1930, 1940, 1950, 1960, 1970, 1980, 1985, 1990, 1993, 1995, 1996, 1997, 1998, 1999, 2000)

Categories = Callable[[npt.NDArray[Any]], list[list[str]]]


def _single(values: npt.NDArray[Any]) -> list[list[str]]:
    return [[str(value)] for value in values.tolist()]


def _first_character(values: npt.NDArray[Any]) -> list[list[str]]:
    return [[value[:1] if value[:1].isdigit() else "other"] for value in values.tolist()]


def _several(values: npt.NDArray[Any]) -> list[list[str]]:
    return [value.split("|") if value else [] for value in values.tolist()]


def _between(edges: Sequence[int]) -> Categories:
    def grouped(values: npt.NDArray[Any]) -> list[list[str]]:
        return [
            [] if np.isnan(value) else [str(np.searchsorted(edges, value, side="right"))]
            for value in values
        ]

    return grouped


ROWS: dict[str, Categories] = {
    "sex": _single,
    "age": _between(AGES),
    "occupation": _single,
    "post_code": _first_character,
}
COLUMNS: dict[str, Categories] = {"genres": _several, "year": _between(YEARS)}


def one_hot(arrays: Arrays, columns: dict[str, Categories]) -> OneHot:
    """Return the categories of some columns as ones, a group for each column."""
    lines: list[int] = []
    features: list[int] = []
    groups: list[int] = []
    for name, categories in columns.items():
        found = categories(arrays[name])
        places = {
            category: at
            for at, category in enumerate(sorted({one for each in found for one in each}))
        }
        for line, each in enumerate(found):
            lines += [line] * len(each)
            features += [sum(groups) + places[category] for category in each]
        groups.append(len(places))
    return OneHot(
        np.array(lines, dtype=np.int64), np.array(features, dtype=np.int64), tuple(groups)
    )


def features_of(name: str, matrix: ObservedMatrix) -> dict[str, Any]:
    """Return the features of a matrix's rows and columns, as zeros and ones and as they were
    published."""
    arrays = feature_arrays(name)
    users = _align(arrays, "user", list(ROWS), matrix.row_labels)
    films = _align(arrays, "film", list(COLUMNS), matrix.column_labels)
    raw = {f"raw_row_{name}": array for name, array in users.items()}
    raw |= {f"raw_column_{name}": array for name, array in films.items()}
    return {
        "row_features": one_hot(users, ROWS),
        "column_features": one_hot(films, COLUMNS),
        "raw": raw,
    }


def _align(arrays: Arrays, label: str, names: Sequence[str], labels: npt.NDArray[Any]) -> Arrays:
    order = np.argsort(arrays[label])
    places = order[np.searchsorted(arrays[label], labels, sorter=order)]
    assert np.array_equal(arrays[label][places], labels), (
        f"every {label} of the matrix has features"
    )
    return {name: arrays[name][places] for name in names}
