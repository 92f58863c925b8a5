"""Scores of imputed genotypes: answers that are known by hand, and bins by the frequency of the rarer allele."""

from typing import Any

import numpy as np
import pytest

from deepmf.errors import BadEntries, BadSetting
from deepmf.sklearn import genotype_scores


def test_scores_of_one_variant_are_those_of_the_formulas() -> None:
    truth = np.repeat([0, 0, 1, 1, 2], [50, 5, 10, 25, 10])
    called = np.repeat([0, 1, 0, 1, 2], [50, 5, 10, 25, 10])
    scores = genotype_scores(truth[:, None], called[:, None], edges=(0, 0.5))
    chance = (55 * 60 + 35 * 30 + 10 * 10) / 100**2
    assert scores.concordance == pytest.approx([0.85])
    assert scores.iqs == pytest.approx([(0.85 - chance) / (1 - chance)])
    assert scores.r2 == pytest.approx([np.corrcoef(truth, called)[0, 1] ** 2])
    assert scores.n_variants.tolist() == [1] and scores.n_cells.tolist() == [100]


def test_a_guess_of_the_common_genotype_agrees_but_has_no_quality() -> None:
    truth = np.zeros((200, 1))
    truth[:4] = 1.0
    scores = genotype_scores(truth, np.zeros((200, 1)), edges=(0, 0.05, 0.5))
    assert scores.concordance[0] == pytest.approx(0.98)
    assert scores.iqs[0] == pytest.approx(0.0)
    assert np.isnan(scores.r2[0])  # a constant has no correlation
    assert np.isnan(scores.concordance[1]) and scores.n_variants.tolist() == [1, 0]


def test_variants_are_binned_by_the_rarer_allele_and_scored_on_hidden_cells_alone() -> None:
    random = np.random.default_rng(0)
    truth = np.column_stack([random.binomial(2, share, 400) for share in (0.02, 0.5, 0.97)]).astype(float)
    hidden = random.random(truth.shape) < 0.3
    dosages = np.where(hidden, truth, 2.0 - truth)  # right where it counts
    scores = genotype_scores(truth, dosages, hidden, edges=(0, 0.1, 0.5))
    assert scores.n_variants.tolist() == [2, 1]
    assert scores.n_cells.sum() == hidden.sum()
    np.testing.assert_allclose([scores.concordance, scores.r2, scores.iqs], 1.0)


@pytest.mark.parametrize(
    ("truth", "dosages", "word"),
    [([[3.0]], [[1.0]], "0, 1 or 2"), ([[1.0]], [[2.5]], "between"), ([[1.0]], [[1.0, 2.0]], "shape")],
)
def test_what_is_no_genotype_is_refused(truth: Any, dosages: Any, word: str) -> None:
    with pytest.raises(BadEntries, match=word):
        genotype_scores(truth, dosages)


def test_bins_cover_all_frequencies() -> None:
    with pytest.raises(BadSetting, match="edges"):
        genotype_scores([[1.0]], [[1.0]], edges=(0.1, 0.5))
