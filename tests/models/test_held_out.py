"""Entries that are set aside: always the same, never seen, and none where there are too few."""

from typing import Any

import numpy as np
import pytest
from tests.models.contract import additive

from deepmf.errors import DeepMFWarning
from deepmf.matrix.entry_store import EntryStore
from deepmf.models import held_out as held_out_module
from deepmf.models.held_out import set_aside
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.models.warm_start import WarmStart


def test_one_entry_in_twenty_is_set_aside_and_no_longer_seen() -> None:
    matrix = additive(40, 30)
    seen, held_out = set_aside(matrix, seed=0)
    assert held_out is not None and held_out.values.size == matrix.n_entries // 20
    assert seen.n_entries + held_out.values.size == matrix.n_entries
    assert seen.shape == matrix.shape and seen.scale == matrix.scale and seen.rows == matrix.rows
    left, whole = seen.to_array(), matrix.to_array()
    assert np.isnan(left[held_out.rows, held_out.columns]).all()
    left[held_out.rows, held_out.columns] = held_out.values
    np.testing.assert_array_equal(left, whole)
    assert held_out.values.dtype == np.float64


def test_the_seed_says_which() -> None:
    matrix = additive(40, 30)
    first, again, other = (set_aside(matrix, seed=seed)[1] for seed in (0, 0, 1))
    assert first is not None and again is not None and other is not None
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, same)
    assert not np.array_equal(first.rows, other.rows)


def test_none_where_there_are_too_few() -> None:
    matrix = additive(40, 30)
    some = matrix.take_entries(np.arange(400))
    fewer = matrix.take_entries(np.arange(399))
    assert set_aside(some, seed=0)[1] is not None
    seen, held_out = set_aside(fewer, seed=0)
    assert seen is fewer and held_out is None


def test_no_more_than_a_choice_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out_module, "_MOST", 25)
    _, held_out = set_aside(additive(40, 30), seed=0)
    assert held_out is not None and held_out.values.size == 25


def test_a_warm_fit_holds_out_entries_that_its_start_was_not_trained_on() -> None:
    matrix = additive(40, 30)
    old = matrix.take_entries(np.arange(matrix.n_entries - 90))
    settings: dict[str, Any] = {
        "hidden_sizes": (8,),
        "epochs": 2,
        "linear_size": 0,
        "views": 2,
        "device": "cpu",
        "latent_size": 4,
    }
    first = OrdinalDMF(**settings).fit(old)
    start = WarmStart(first.entries_, first.predictor_, matrix)
    seen, held_out = set_aside(matrix, seed=0, start=start)
    assert held_out is not None and held_out.values.size == min(matrix.n_entries // 20, 45)
    assert start.are_unseen(held_out.rows, held_out.columns).all()
    task = OrdinalDMF(**settings)._warm_task(EntryStore.of(matrix), None, start)
    np.testing.assert_array_equal(task.source.matrix.to_array(), seen.to_array())
    few = matrix.take_entries(np.arange(matrix.n_entries - 90 + 39))
    with pytest.warns(DeepMFWarning, match="39 of .* entries are new to start_from, too few") as told:
        OrdinalDMF(**settings).fit(few, start_from=first)
    assert told[0].filename == __file__
