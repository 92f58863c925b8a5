"""Texts as numbers: as by polars' own dictionary, whatever their hashes."""

import numpy as np
import polars as pl
import pytest

from deepmf.matrix import text_codes as module
from deepmf.matrix.text_codes import text_codes


def check(texts: list[str]) -> None:
    found = text_codes(pl.Series(texts, dtype=pl.String))
    assert found.distinct.to_list() == sorted(set(texts))
    assert found.distinct.gather(found.positions).to_list() == texts


@pytest.mark.parametrize("n_distinct", [1, 3, 500, 5000])
@pytest.mark.parametrize("bits", [1, 4, 18])
def test_positions_lead_back(monkeypatch: pytest.MonkeyPatch, n_distinct: int, bits: int) -> None:
    monkeypatch.setattr(module, "_FIRST_BITS", bits)
    monkeypatch.setattr(module, "_FEWEST_BITS", bits)
    numbers = np.random.default_rng(0).integers(0, n_distinct, 3000)
    check([f"Zoë {number}" for number in numbers.tolist()])


def test_nothing_and_the_empty_text() -> None:
    check([])
    check(["", "a", ""])


def test_texts_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl.Series, "hash", lambda self: pl.Series([7] * self.len(), dtype=pl.UInt64))
    check(["b", "a", "b", "c"])
