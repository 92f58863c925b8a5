"""The page: one HTML file that needs nothing but itself, from a title to the last table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deepmf.evaluation.areas import UNKNOWN
from deepmf.evaluation.ranking import RankingEvaluation
from deepmf.files import write_atomically
from deepmf.formatting import format_amount, format_count, format_difference, format_percent, format_quantity
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.pairs import Unknown
from deepmf.report.content import LeftOut, Section, rendered
from deepmf.report.findings import Findings, find
from deepmf.report.sections import (
    area_section,
    boundary_section,
    calibration_section,
    cold_start_section,
    column_section,
    confusion_section,
    data_section,
    explanation_section,
    hit_shares,
    learning_section,
    ranking_section,
    settings_section,
)

SECTIONS = (
    data_section,
    area_section,
    confusion_section,
    calibration_section,
    cold_start_section,
    column_section,
    ranking_section,
    explanation_section,
    learning_section,
    boundary_section,
    settings_section,
)

# Of fewer test entries every number is largely chance.
FEW = 100


def write_report(
    model: Model,
    test: ObservedMatrix,
    path: str | Path,
    *,
    title: str | None = None,
    unknown: Unknown = "error",
    ranking: RankingEvaluation | None = None,
    explain: Iterable[tuple[Any, Any]] = (),
) -> None:
    """Write a page on how a fitted model predicts test entries to a file, whole or not at all.

    New rows and columns of the test must be covered already (`extend`); with `unknown="fallback"` the errors of what
    is not are among those by area, with "nan" they are left out. `ranking` is what `evaluate_ranking` found; unless
    given, it is evaluated with its defaults, on some rows where there are very many. `explain` are pairs of a row and
    a column whose predictions are explained by the entries of the row; no others are shown of any row. The page loads
    nothing from anywhere.

    >>> import tempfile
    >>> from deepmf.data import split_entries
    >>> from deepmf.datasets import generate
    >>> from deepmf.models.means import Means
    >>> split = split_entries(generate(seed=0).matrix, train=0.8, validation=0.0, test=0.2, seed=0)
    >>> path = Path(tempfile.mkdtemp(), "report.html")
    >>> write_report(Means().fit(split.train), split.test, path)
    >>> path.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    page = written(find(model, test, unknown=unknown, ranking=ranking, explain=explain), title=title)
    # A label may hold half a character, which no file can.
    write_atomically(path, lambda temporary: temporary.write_bytes(page.encode("utf-8", errors="replace")))


def written(found: Findings, *, title: str | None = None) -> str:
    """Return the whole page."""
    title = title or f"{found.measured.name} on {format_quantity(found.measured.overall.n_entries, 'test entry')}"
    made = [section(found) for section in SECTIONS]
    return rendered(
        "page.html",
        title=title,
        summary=_summary(found),
        cautions=_cautions(found),
        tiles=_tiles(found),
        sections=[part for part in made if isinstance(part, Section)],
        left_out=[part for part in made if isinstance(part, LeftOut)],
    )


def _summary(found: Findings) -> str:
    """Return the main result as a sentence."""
    scale, overall = found.model.scale_, found.measured.overall
    summary = (
        f"On {format_quantity(overall.n_entries, 'test entry')}, {found.measured.name} is off by "
        f"{format_amount(overall.mae)} on average, on a scale from {scale.low:g} to {scale.high:g}."
    )
    if found.baseline is None:
        return summary
    means, name = found.baseline.overall.rmse, found.baseline.name
    if overall.rmse == means:
        return f"{summary} Its RMSE is that of the {name} of rows and columns."
    by = format_difference(overall.rmse, means).lstrip("+−±–")
    by = f"{by} {'lower' if overall.rmse < means else 'higher'}".strip()
    return f"{summary} Its RMSE is {by} than that of the {name} of rows and columns."


def _cautions(found: Findings) -> list[str]:
    """Return the cautions that apply to all the numbers."""
    cautions, n_entries = [], found.test.n_entries + found.n_unknown
    if found.n_unknown:
        cautions.append(_about_unknown(found))
    if found.n_seen:
        cautions.append(
            f"The model has seen {format_count(found.n_seen)} of the {format_count(n_entries)} test entries in "
            "training or when it was extended, so the errors on this page are too small."
        )
    if n_entries < FEW:
        cautions.append(
            f"With only {format_quantity(n_entries, 'test entry')}, every number on this page is largely chance."
        )
    return cautions


def _about_unknown(found: Findings) -> str:
    n_entries = format_count(found.test.n_entries + found.n_unknown)
    n_unknown = format_count(found.n_unknown)
    unknown = f"Of {n_entries} test entries, {n_unknown} have a row or column that the model does not know"
    by_area = {part.area: part for part in found.measured.areas}
    if UNKNOWN not in by_area:
        return f"{unknown}; this page leaves them out."
    return (
        f"{unknown}. The means of what is known predict them with an RMSE of {format_amount(by_area[UNKNOWN].rmse)}; "
        "they count in the RMSE and MAE of this test and have a bar of their own by area, and the other sections "
        "omit them."
    )


def _tiles(found: Findings) -> list[tuple[str, str]]:
    """Return the key numbers under their names."""
    overall = found.measured.overall
    tiles = [("RMSE", format_amount(overall.rmse)), ("MAE", format_amount(overall.mae))]
    if found.baseline is not None:
        tiles.append(
            (f"RMSE against {found.baseline.name}", format_difference(overall.rmse, found.baseline.overall.rmse))
        )
    if found.confusion is not None:
        exact, near = hit_shares(found)
        tiles += [("exactly the right level", format_percent(exact)), ("at most one level off", format_percent(near))]
    return tiles
