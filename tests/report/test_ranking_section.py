"""The section on ranking: the scores of the evaluation, popularity beside them, and which rows count."""

import re

import numpy as np
import pytest
from tests.report.conftest import html_of, lines_of

from deepmf.data.splits import AreaSplit
from deepmf.evaluation.ranking_evaluation import evaluate_ranking
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means
from deepmf.models.model import Model
from deepmf.report import findings
from deepmf.report.content import LeftOut
from deepmf.report.findings import find
from deepmf.report.ranking_section import ranking_section


def test_the_numbers_are_those_of_the_evaluation(entries: ObservedMatrix, discrete: Model) -> None:
    ranked = evaluate_ranking(discrete, entries, n=3, relevant_from=5)
    page = html_of(ranking_section(find(discrete, entries, ranking=ranked)))
    lines = lines_of(page, "Scores at 3")
    assert lines[0] == ["", "DMFD", "popularity"]
    assert [line[0] for line in lines[1:]] == ["precision", "recall", "NDCG", "hit rate"]
    assert lines[1][1] == f"{ranked.model.precision:.3f} ± {ranked.model.margins['precision']:.3f}"
    assert lines[3][2].startswith(f"{ranked.popularity.ndcg:.3f} ± ")
    assert "Test entries from 5 on are relevant" in page
    assert f"{ranked.n_without} without any are left out" in page
    assert len(re.findall("<title>[^<]* ± ", page)) == 8  # a margin of each


def test_unless_given_it_is_evaluated_with_the_defaults(entries: ObservedMatrix, discrete: Model) -> None:
    assert find(discrete, entries).ranking == evaluate_ranking(discrete, entries)


def test_of_very_many_rows_some_are_drawn(
    entries: ObservedMatrix, discrete: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "_MOST_RANKED", 300)
    found = find(discrete, entries)
    assert found.ranking is not None
    assert found.ranking.n_rows == 10  # times 30 columns
    assert "These rows were drawn at random" in html_of(ranking_section(found))


def test_where_there_is_nothing_to_rank_the_reason_is_given(split: AreaSplit) -> None:
    reals = ObservedMatrix.from_array(np.random.default_rng(0).normal(size=(20, 20)))
    left_out = ranking_section(find(Means().fit(reals), reals))
    assert isinstance(left_out, LeftOut)
    assert "has no levels: say from which value on an entry is relevant" in left_out.reason
    seen = ranking_section(find(ALS(latent_size=2, epochs=1).fit(split.train), split.train))
    assert isinstance(seen, LeftOut)
    assert "the model has seen all test entries" in seen.reason
