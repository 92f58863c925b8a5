"""Odds of presence: probabilities that add up to the further entries that rows get."""

from pathlib import Path

import numpy as np
import pytest
from arrival_probabilities import Arrivals

from deepmf.datasets import generate
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.loading import load

# The larger of both matrices has enough entries to hold some out.
SIZES = (5949, 6000)


@pytest.fixture(scope="module", params=SIZES)
def arrivals(request: pytest.FixtureRequest) -> Arrivals:
    matrix = generate(400, 150, n_entries=request.param, noise=0.5, named=False, seed=0).matrix
    return Arrivals.draw(matrix, "rows", seed=0)


@pytest.fixture(scope="module")
def model(arrivals: Arrivals) -> ALS:
    return ALS(latent_size=4, epochs=5, seed=0).fit(arrivals.train)


def test_new_rows_get_as_many_further_entries_as_expected(arrivals: Arrivals, model: ALS) -> None:
    for figures in arrivals.count_further(model, (1, 3, 10)):
        assert figures.n_rows > 20
        assert 0.7 < figures.expected / figures.observed < 1.4


def test_longer_rows_get_what_rows_of_their_length_got() -> None:
    """Half of the rows have 4 entries and the others 40: after ten entries, thirty follow."""
    numbers, lengths = np.random.default_rng(0), np.repeat([4, 40], 60)
    columns = np.concatenate([numbers.permutation(80)[:length] for length in lengths])
    rows = np.repeat(np.arange(lengths.size), lengths)
    train = ObservedMatrix.from_interactions(rows, columns, column_labels=range(80))
    model = ALS(seed=0).fit(train)
    for n_known, n_further in ((1, 21.0), (3, 19.0), (10, 30.0)):
        guest = model.fold_in(np.arange(n_known)).recommend(n=80)
        assert guest.presence is not None and guest.presence.size == 80 - n_known
        assert abs(guest.presence.sum() / n_further - 1.0) < 0.15


def test_known_and_new_rows_have_the_same_probabilities(arrivals: Arrivals, model: ALS) -> None:
    row = arrivals.train.row_labels[3]
    entries = model.entries_.row_entries(np.array([3]))
    known = model.recommend(row, n=5)
    guest = model.fold_in(model.column_labels_[entries.others], entries.values).recommend(n=5)
    assert known.presence is not None and guest.presence is not None
    np.testing.assert_array_equal(known.labels, guest.labels)
    np.testing.assert_allclose(known.presence, guest.presence, rtol=1e-5)


def test_many_rows_with_one_entry_make_no_column_less_popular(model: ALS) -> None:
    rows, columns = np.arange(1000, 1600), model.entries_.train.by_row.columns[:600]
    labels, values = model.column_labels_[columns], model.entries_.train.values[:600]
    more = model.extend(ObservedMatrix.from_entries(rows, labels, values, model.scale_))
    before, after = (
        each.fold_in(labels[:1], values[:1]).recommend(n=150) for each in (model, more)
    )
    assert before.presence is not None and after.presence is not None
    assert after.presence.sum() == pytest.approx(before.presence.sum(), rel=0.05)


def test_an_explanation_has_the_probability_of_the_list() -> None:
    train = generate(60, 30, n_entries=500, named=False, seed=0).matrix
    interactions = ObservedMatrix.from_interactions(*train.entries()[:2])
    guest = ALS(seed=0).fit(interactions).fold_in([0, 1])
    best = guest.recommend(n=1)
    assert best.presence is not None
    np.testing.assert_allclose(
        guest.explain(best.labels[0]).prediction, best.presence[0], rtol=1e-5
    )


def test_offsets_are_stored(model: ALS, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    stored = load(tmp_path / "model.safetensors").rankers_.presence
    assert stored is not None and model.rankers_.presence is not None
    np.testing.assert_array_equal(stored.offsets, model.rankers_.presence.offsets)
    assert np.unique(stored.offsets).size > 3
