"""What a fit chooses of what comes next, on rows whose next column is known."""

import numpy as np
import pytest

from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.recommend.next_fit import choose_next, score_targets
from deepmf.recommend.presence_fit import HiddenRows

N = 40


def walk(dice: np.random.Generator, chance: float, n_steps: int = 10) -> list[int]:
    """Return columns of a circle, one by one, with jumps to one of six by chance."""
    places, known = [int(dice.integers(N))], dice.choice(N, 6, replace=False)
    for _ in range(n_steps):
        follows = dice.random() >= chance
        places.append((places[-1] + 1) % N if follows else int(dice.choice(known)))
    return places


def test_known_columns_count_more_but_not_alone_where_rows_come_back_to_them() -> None:
    dice = np.random.default_rng(0)
    rows = {f"row {row}": [f"{at:02d}" for at in walk(dice, 0.6)] for row in range(200)}
    following = ALS(seed=0).fit(ObservedMatrix.from_sequences(rows)).rankers_.following
    assert following is not None and following.allows_repeats
    assert 0.0 < following.repeats < 10.0


def test_the_ndcg_of_a_choice_is_that_of_rankings_of_all_columns() -> None:
    dice = np.random.default_rng(0)
    rows = {row: list(dict.fromkeys(walk(dice, 0.4))) for row in range(300)}
    model = ALS(seed=0).fit(ObservedMatrix.from_sequences(rows))
    presence = model.rankers_.presence
    held_out = HiddenRows.from_training(model.entries_, model.predictor_, seed=0, last=True)
    assert presence is not None and held_out is not None
    following = choose_next(held_out, presence, None)
    visible = held_out.visible
    totals = EntryStore.of(held_out.train).column_totals
    keys = following.score(visible, presence.model.score(visible), (totals + 0.5) / 301.0)
    keys[visible.group_of, visible.others] = -np.inf
    targets = np.empty(held_out.n_rows, dtype=np.int64)
    targets[held_out.hidden.rows] = held_out.hidden.columns
    assert score_targets(keys, targets).mean() == pytest.approx(following.ndcg, abs=1e-3)
