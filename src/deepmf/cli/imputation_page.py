"""The page of `deepmf impute`: patterns of gaps, imputed beside observed values, the chain, and
columns to doubt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepmf.formatting import format_quantity
from deepmf.models.gibbs.chain import compare_chains
from deepmf.plots import plot_imputed, plot_missing_patterns
from deepmf.report.content import Figure, LeftOut, Section, Table, render_page, shorten, write_page

if TYPE_CHECKING:
    from deepmf.sklearn import DMFImputer


def write_imputation(
    table: Any, completed: Any, columns: list[str], imputer: DMFImputer, path: Path
) -> None:
    """Write an HTML page on a drawn table beside the given one; `columns` are those with gaps that
    were filled in."""
    from deepmf.sklearn import imputed_values, missing_patterns

    patterns = missing_patterns(table)
    n_gaps = {name: int(table[name].null_count()) for name in columns}
    shown = sorted(columns, key=lambda name: -n_gaps[name])[:24]
    figures = [
        Figure(
            shorten(name),
            plot_imputed(*imputed_values(table, completed, name), x_label=shorten(name)),
            f"Observed and imputed values of {shorten(name)}",
        )
        for name in shown
    ]
    plot = plot_missing_patterns(patterns.columns, patterns.missing, patterns.counts.tolist())
    gaps = Figure("Patterns", plot, "Which columns are missing together")
    how = (
        "One drawn table. Densities that differ need not be wrong; a difference that the other columns do not explain "
        "is a reason to look."
    )
    page = render_page(
        format_quantity(sum(n_gaps.values()), "imputed value"),
        f"{format_quantity(len(columns), 'column')} of {len(table.columns)} had gaps.",
        [
            Section(
                "Gaps",
                "A line for each pattern of missing columns, the most frequent first.",
                [gaps],
            ),
            Section("Imputed values", how, figures),
            _build_chain_section(imputer, shown),
        ],
        cautions=_list_doubtful(imputer, columns),
        tiles=[(name, f"{weight:.0%}") for name, weight in imputer.weights_.items()],
    )
    write_page(page, path)


def _list_doubtful(imputer: DMFImputer, columns: list[str]) -> list[str]:
    """Return a sentence for each column with gaps that does not follow from the others."""
    score = imputer.score_
    if not score:
        return []
    scores = zip(score.columns.tolist(), score.column_scores, score.column_margins, strict=True)
    return [
        f"{name} does not follow from the other columns (score {value:.2f}): its imputed values tell nothing new."
        for name, value, margin in scores
        if name in columns and value - margin < 0.05
    ]


def _build_chain_section(imputer: DMFImputer, columns: list[str]) -> Section | LeftOut:
    traces = imputer.trace_means()
    if not traces:
        return LeftOut("Convergence", "values are not drawn by a chain")
    # the first half of a chain depends on where it starts
    chains = {name: np.asarray(traces[name]) for name in columns if name in traces}
    ratios = {name: compare_chains(part[:, part.shape[1] // 2 :]) for name, part in chains.items()}
    lines = [
        [shorten(name), f"{ratio:.2f}", "yes" if ratio < 1.1 else "no"]  # Gelman and Rubin, 1992
        for name, ratio in ratios.items()
    ]
    how = "Four chains of the column's mean; the ratio of their variance together to that of each is 1 when they agree."
    return Section(
        "Convergence", how, tables=[Table("Chains", ["column", "ratio", "agree"], lines)]
    )
