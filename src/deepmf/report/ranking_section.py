"""The section on ranking: how many of the columns ranked first are relevant, against popularity."""

from __future__ import annotations

from deepmf.evaluation.ranking_evaluation import MEASURES, RankingEvaluation
from deepmf.formatting import format_amount, format_count, format_percent, format_quantity
from deepmf.plots import plot_bars
from deepmf.report.content import Figure, LeftOut, Section, Table
from deepmf.report.findings import Findings

SCORE_NAMES = {"precision": "precision", "recall": "recall", "ndcg": "NDCG", "hit_rate": "hit rate"}


def ranking_section(found: Findings) -> Section | LeftOut:
    """Return how the model ranks columns for the rows of the test, beside popularity."""
    title, ranked = "Ranking", found.ranking
    if ranked is None:
        return LeftOut(title, found.no_ranking)
    both = (ranked.model, ranked.popularity)
    scores = {each.name: [getattr(each, measure) for measure in MEASURES] for each in both}
    margins = {each.name: [each.margins[measure] for measure in MEASURES] for each in both}
    names = [SCORE_NAMES[measure] for measure in MEASURES]
    told = "; ".join(f"{name} {format_amount(getattr(ranked.model, each))}" for each, name in SCORE_NAMES.items())
    shown = Figure(
        f"The first {ranked.n} columns of each row",
        plot_bars(names, scores, margins=margins, y_label="score"),
        f"Scores of the first {ranked.n} columns of each row, ranked by {ranked.model.name}: {told}",
    )
    lines = [
        [name, *(_with_margin(scores[model][at], margins[model][at]) for model in scores)]
        for at, name in enumerate(names)
    ]
    return Section(
        title=title,
        how="Longer bars are better: for each row, the columns it has no entry for are ranked, and the scores say how "
        f"many of its relevant test entries are among the first {ranked.n}.",
        template="ranking.html",
        content={
            "scores": shown,
            "meanings": _meanings(ranked),
            "sentence": _sentence(ranked),
            "numbers": Table(f"Scores at {ranked.n}", ["", *scores], lines),
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
    rows = f"{format_quantity(ranked.n_rows, 'row')} with {format_quantity(ranked.n_relevant, 'relevant test entry')}"
    left_out = (
        f"{format_count(ranked.n_without)} without any are left out" if ranked.n_without else "no row is without any"
    )
    sentence = f"Test entries from {ranked.relevant_from:g} on are relevant: {rows}; {left_out}."
    if ranked.n_not_drawn:
        share = format_percent(ranked.n_rows / (ranked.n_rows + ranked.n_not_drawn))
        sentence += f" These rows were drawn at random, {share} of all with relevant entries."
    if ranked.min_entries:
        sentence += f" Columns with fewer than {format_count(ranked.min_entries)} entries are not ranked."
    return (
        f"{sentence} Popularity, the baseline, ranks columns by their number of entries; as what is popular gets most "
        "values, a model that predicts them well may still score below it."
    )
