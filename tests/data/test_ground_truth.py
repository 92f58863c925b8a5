"""Features of generated rows and columns: they explain the share of factors and effects that was
asked for."""

import numpy as np
import pytest

from deepmf.data.ground_truth import GENRES, OCCUPATIONS
from deepmf.datasets import Generated, generate
from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray


@pytest.fixture(scope="module")
def half() -> Generated:
    return generate(3000, 2000, n_entries=3000, rank=2, explained=0.5, named=False, seed=1)


def explained_share(design: FloatArray, target: FloatArray) -> float:
    """Return how much of the variance a least-squares fit explains."""
    fitted = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(1 - np.var(target - fitted) / np.var(target))


def test_the_share_is_explained(half: Generated) -> None:
    people, films = half.row_features, half.column_features
    assert people is not None and films is not None
    jobs = np.array(OCCUPATIONS)[None] == people.values("occupation")[:, None]
    ages, years = (
        np.column_stack([each, np.ones(each.size)])
        for each in (people.values("age"), films.values("year"))
    )
    genres = np.array(
        [[genre in found for genre in GENRES] for found in films.values("genres").tolist()],
        dtype=float,
    )
    genres /= np.sqrt(genres.sum(axis=1, keepdims=True))
    assert explained_share(ages, half.truth.row_effects) == pytest.approx(0.5, abs=0.05)
    assert explained_share(years, half.truth.column_effects) == pytest.approx(0.5, abs=0.05)
    for design, factors in (
        (jobs.astype(float), half.truth.row_factors),
        (genres, half.truth.column_factors),
    ):
        shares = [explained_share(design, factor) for factor in factors]
        # few occupations and genres: their tastes are few draws
        assert 0.15 < np.mean(shares) < 0.8


def test_what_there_is(half: Generated) -> None:
    people, films = half.row_features, half.column_features
    assert people is not None and films is not None
    assert people.kinds == {"age": "number", "occupation": "category"}
    assert films.kinds == {"year": "number", "genres": "list"}
    assert {len(found) for found in films.values("genres")} == {1, 2}
    np.testing.assert_array_equal(people.labels, half.matrix.row_labels)
    np.testing.assert_array_equal(films.labels, half.matrix.column_labels)


def test_without_a_share_there_are_none_and_nothing_changes() -> None:
    plain = generate(30, 20, seed=3)
    assert (plain.row_features, plain.column_features) == (None, None)
    some = generate(30, 20, explained=0.5, seed=3)
    assert some.row_features is not None and some.matrix != plain.matrix
    assert repr(some.row_features) == repr(generate(30, 20, explained=0.9, seed=3).row_features)
    for wrong in (-0.1, 1.5, "half"):
        with pytest.raises(BadSetting, match="explained"):
            generate(30, 20, explained=wrong)  # type: ignore[arg-type]
