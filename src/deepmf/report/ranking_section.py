"""The section on ranking: how many of the columns ranked first are relevant, against popularity."""

from __future__ import annotations

from deepmf.charts.bars import bars
from deepmf.charts.series import Series
from deepmf.charts.styles import PAIR
from deepmf.charts.wording import amount, count, counted, percent, short
from deepmf.evaluation.ranking_evaluation import MEASURES, RankingEvaluation
from deepmf.report.content import Figure, LeftOut, Section, Table
from deepmf.report.findings import Findings

SCORE_NAMES = {"precision": "precision", "recall": "recall", "ndcg": "NDCG", "hit_rate": "hit rate"}


def ranking_section(found: Findings) -> Section | LeftOut:
    """Return how the model ranks columns for the rows of the test, beside popularity."""
    title, ranked = "Ranking", found.ranking
    if ranked is None:
        return LeftOut(title, found.no_ranking)
    series = [
        Series(
            each.name,
            [getattr(each, measure) for measure in MEASURES],
            style,
            [each.margins[measure] for measure in MEASURES],
        )
        for each, style in zip((ranked.model, ranked.popularity), PAIR, strict=True)
    ]
    names = [SCORE_NAMES[measure] for measure in MEASURES]
    told = "; ".join(f"{name} {amount(getattr(ranked.model, each))}" for each, name in SCORE_NAMES.items())
    chart = Figure(
        f"The first {ranked.n} columns of each row",
        bars(
            names,
            series,
            title=f"Scores of the first {ranked.n} columns of each row, ranked by {ranked.model.name}: {told}",
            x_label="",
            y_label="score",
            write=short,
        ),
        legend=[(each.style, each.name) for each in series],
    )
    lines = [
        [name, *(_with_margin(each.numbers[at], each.margin(at)) for each in series)] for at, name in enumerate(names)
    ]
    return Section(
        title=title,
        how="Longer bars are better: for each row, the columns it has no entry for are ranked, and the scores say how "
        f"many of its relevant test entries are among the first {ranked.n}.",
        template="ranking.html",
        content={
            "scores": chart,
            "meanings": _meanings(ranked),
            "sentence": _sentence(ranked),
            "numbers": Table(f"Scores at {ranked.n}", ["", *(each.name for each in series)], lines),
        },
    )


def _with_margin(score: float, margin: float | None) -> str:
    return f"{score:.3f} ± {'–' if margin is None else f'{margin:.3f}'}"


def _meanings(ranked: RankingEvaluation) -> list[tuple[str, str]]:
    return [
        (
            "precision",
            f"the share of the first {ranked.n} that is relevant; what was never rated counts as not relevant",
        ),
        (
            "recall",
            f"the share of a row\N{RIGHT SINGLE QUOTATION MARK}s relevant entries that is among the first {ranked.n}",
        ),
        ("NDCG", "the same with more weight on the first places; 1 where all relevant entries come first"),
        ("hit rate", f"the share of rows with a relevant entry among the first {ranked.n}"),
    ]


def _sentence(ranked: RankingEvaluation) -> str:
    rows = f"{counted(ranked.n_rows, 'row')} with {counted(ranked.n_relevant, 'relevant test entry')}"
    left_out = f"{count(ranked.n_without)} without any are left out" if ranked.n_without else "no row is without any"
    sentence = f"Test entries from {ranked.relevant_from:g} on are relevant: {rows}; {left_out}."
    if ranked.n_not_drawn:
        share = percent(ranked.n_rows / (ranked.n_rows + ranked.n_not_drawn))
        sentence += f" These rows were drawn at random, {share} of all with relevant entries."
    if ranked.min_entries:
        sentence += f" Columns with fewer than {count(ranked.min_entries)} entries are not ranked."
    return (
        f"{sentence} Popularity, the baseline, ranks columns by their number of entries; as what is popular gets most "
        "values, a model that predicts them well may still score below it."
    )
