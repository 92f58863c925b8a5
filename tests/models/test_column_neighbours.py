"""Approximate rankings: nearly those of all columns, with what changed since and without what is left out."""

from typing import Any

import numpy as np
import pytest
from tests.models.contract import additive

from deepmf.data.synthetic.generator import generate
from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.autoencoders.cfnade import NadePredictor
from deepmf.models.column_neighbours import WANTED_RECALL, ColumnNeighbours
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means


@pytest.fixture(scope="module")
def wide() -> ALS:
    return ALS(latent_size=6, epochs=3, seed=0).fit(generate(150, 3000, density=0.02, seed=0).matrix)


@pytest.fixture(scope="module")
def near(wide: ALS) -> ColumnNeighbours:
    return wide.column_neighbours()


def test_the_recall_is_the_one_it_says(wide: ALS, near: ColumnNeighbours) -> None:
    assert WANTED_RECALL <= near.recall <= 1
    found = []
    for row in range(len(wide.row_labels_)):
        exact = np.argsort(-wide.predictor_.score_block(np.array([row]), np.arange(3000))[0])[:10]
        found.append(np.isin(exact, near.candidates(wide.predictor_, row, 10)).mean())
    assert np.mean(found) == pytest.approx(near.recall, abs=0.01)
    assert near.candidates(wide.predictor_, 0, 10).size < 3000 / 2


def test_recommendations_are_nearly_exact_and_leave_out_what_they_should(wide: ALS, near: ColumnNeighbours) -> None:
    rows = wide.row_labels_[:20].tolist()
    exact, found = wide.recommend(rows, 10), wide.recommend(rows, 10, neighbours=near)
    assert np.mean([np.isin(*lines).mean() for lines in zip(exact.labels, found.labels, strict=True)]) > 0.95
    for row in rows[:5]:
        best = wide.recommend(row, 10, neighbours=near)
        seen = wide.entries_.seen_columns(wide.entries_.rows.positions([row])).others
        assert best.labels.size == 10 and not set(best.labels) & set(wide.column_labels_[seen])
        assert np.all(np.diff(best.values) <= 0)
        others = wide.recommend(row, 10, neighbours=near, exclude=best.labels)
        assert others.labels.size == 10 and not set(others.labels) & set(best.labels)
        some = wide.column_labels_[:7]
        few = wide.recommend(row, 10, neighbours=near, among=some), wide.recommend(row, 10, among=some)
        assert few[0].labels.tolist() == few[1].labels.tolist()
    # Where nearly everything near a row is barred, all columns are ranked.
    most = wide.column_labels_[: 3000 - 12]
    left = wide.recommend(rows[0], 5, exclude=most, neighbours=near)
    assert left.labels.tolist() == wide.recommend(rows[0], 5, exclude=most).labels.tolist()


def test_new_columns_and_guests_are_ranked_too(wide: ALS, near: ColumnNeighbours) -> None:
    fans = wide.row_labels_[:40]
    more = wide.extend(ObservedMatrix.from_entries(fans, ["Premiere"] * 40, [5] * 40, wide.scale_))
    guest = more.fold_in(wide.column_labels_[:3].tolist(), [5, 4, 5])
    exact = guest.recommend(200).labels.tolist()
    assert "Premiere" in guest.recommend(exact.index("Premiere") + 1, neighbours=near).labels


def test_what_an_index_cannot_serve(wide: ALS, near: ColumnNeighbours) -> None:
    other = ALS(latent_size=6, epochs=1, seed=1).fit(wide.entries_.train)
    with pytest.raises(BadSetting, match="this index of columns is that of another model"):
        other.recommend(other.row_labels_[0], neighbours=near)
    with pytest.raises(BadSetting, match="needs at least 1,000 of them; got 25, whose exact rankings take no time"):
        Means().fit(additive()).column_neighbours()
    parts: Any = {name: getattr(wide.predictor_, name) for name in ("rows", "columns", "encoder", "readout")}
    with pytest.raises(BadSetting, match="does not rank by products of latents"):
        ColumnNeighbours(NadePredictor(**parts))
