"""Texts as numbers: each distinct one is looked at once, all others by their hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.files.frame_library import import_polars
from deepmf.matrix.arrays import IndexArray

if TYPE_CHECKING:
    import polars as pl

# Of tables of hashes: the first stays in a processor's cache; those after it are as large as what is left asks for.
_FIRST_BITS, _FEWEST_BITS, _MOST_BITS = 18, 10, 22
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplied by it, hashes go to other places in the next table


class TextCodes(NamedTuple):
    """Distinct texts, sorted, and the position among them of each text that was given."""

    distinct: pl.Series
    positions: IndexArray


def text_codes(texts: pl.Series) -> TextCodes:
    """Return the distinct texts and the position of each; nothing is missing.

    Texts of equal hash are taken for equal, and then compared with what they were taken for: polars' own hash of all
    texts, a few passes in numpy and one comparison take a third of the time of its dictionary encoding.
    """
    first_places, codes = _grouped(texts.hash().to_numpy())
    some = texts.gather(first_places)
    order = some.arg_sort().to_numpy()
    rank = np.empty(order.size, dtype=codes.dtype)
    rank[order] = np.arange(order.size)
    distinct, positions = some.gather(order), rank[codes]
    if (distinct.gather(positions) == texts).all():
        return TextCodes(distinct, positions)
    return _by_dictionary(texts)  # two texts have one hash


def _grouped(hashes: npt.NDArray[np.uint64]) -> tuple[IndexArray, IndexArray]:
    """Number distinct hashes; return a place where each stands, and the number of each hash that was given.

    Every hash writes its place into a table; the last of a slot stays there, and all equal to it find it. The others,
    which share a slot with another hash, are few: they have another table.
    """
    index: type[np.int32] | type[np.int64] = np.int32 if hashes.size < 2**31 else np.int64
    bits = _FIRST_BITS
    codes: IndexArray = np.empty(hashes.size, dtype=index)
    firsts: list[IndexArray] = []
    rest: IndexArray | None = None  # None: all
    left, n_found = hashes, 0
    while left.size:
        slots = (left >> np.uint64(64 - bits)).astype(np.int32)
        table: IndexArray = np.full(1 << bits, -1, dtype=index)
        table[slots] = np.arange(left.size, dtype=index)
        taken = np.flatnonzero(table >= 0)
        of_slot = np.zeros(1 << bits, dtype=np.uint64)
        of_slot[taken] = left[table[taken]]
        places = table[taken] if rest is None else rest[table[taken]]
        table[taken] = np.arange(n_found, n_found + taken.size)
        firsts.append(places)
        n_found += taken.size
        alike = of_slot[slots] == left
        if rest is None:
            codes = table[slots]
            rest = np.flatnonzero(~alike)
        else:
            codes[rest[alike]] = table[slots[alike]]
            rest = rest[~alike]
        left = left[~alike] * _SPREAD
        bits = int(np.clip(left.size.bit_length(), _FEWEST_BITS, _MOST_BITS))
    return (np.concatenate(firsts) if firsts else np.empty(0, dtype=index)), codes


def _by_dictionary(texts: pl.Series) -> TextCodes:
    polars = import_polars()
    distinct = texts.unique().sort()
    return TextCodes(distinct, texts.cast(polars.Enum(distinct)).to_physical().to_numpy().astype(np.int64))
