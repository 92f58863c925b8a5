"""The report on a model: one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

from deepmf.evaluation.areas import UNKNOWN
from deepmf.evaluation.ranking import RankingEvaluation
from deepmf.files import write_atomically
from deepmf.formatting import format_amount, format_count, format_difference, format_percent, format_quantity
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.report.content import LeftOut, Section, render_template
from deepmf.report.findings import Findings, find
from deepmf.report.sections import (
    compute_hit_shares,
    make_area_section,
    make_calibration_section,
    make_cold_start_section,
    make_column_section,
    make_confusion_section,
    make_data_section,
    make_learning_section,
    make_ranking_section,
    make_settings_section,
)
from deepmf.scoring.pairs import Unknown

SECTIONS = (
    make_data_section,
    make_area_section,
    make_confusion_section,
    make_calibration_section,
    make_cold_start_section,
    make_column_section,
    make_ranking_section,
    make_learning_section,
    make_settings_section,
)

# Below this number of test entries, the page warns that its numbers are uncertain.
FEW = 100


def write_report(
    model: Model,
    test: ObservedMatrix,
    path: str | Path,
    *,
    title: str | None = None,
    unknown: Unknown = "error",
    ranking: RankingEvaluation | None = None,
) -> None:
    """Write an HTML page on how a fitted model predicts test entries. The file is replaced only when complete.

    Parameters
    ----------
    model : a fitted model, extended by the new rows and columns of the test.
    test : the test entries.
    path : the file to write.
    title : title of the page; default: the model and the number of entries.
    unknown : how to treat entries whose row or column the model does not know, as in `evaluate`.
    ranking : result of `evaluate_ranking`; default: evaluated with its defaults, on a sample of rows if there are many.

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
    page = render_page(find(model, test, unknown=unknown, ranking=ranking), title=title)
    # A label may hold half of a surrogate pair, which UTF-8 cannot encode.
    write_atomically(path, lambda temporary: temporary.write_bytes(page.encode("utf-8", errors="replace")))


def render_page(found: Findings, *, title: str | None = None) -> str:
    """Return the HTML of the page."""
    title = title or f"{found.measured.name} on {format_quantity(found.measured.overall.n_entries, 'test entry')}"
    made = [section(found) for section in SECTIONS]
    return render_template(
        "page.html",
        title=title,
        summary=_summarise(found),
        cautions=_list_cautions(found),
        tiles=_list_tiles(found),
        sections=[part for part in made if isinstance(part, Section)],
        left_out=[part for part in made if isinstance(part, LeftOut)],
    )


def _summarise(found: Findings) -> str:
    """Return the main result as a sentence or two."""
    scale, overall = found.model.scale_, found.measured.overall
    summary = (
        f"On {format_quantity(overall.n_entries, 'test entry')}, {found.measured.name} is off by "
        f"{format_amount(overall.mae)} on average, on a scale from {scale.low:g} to {scale.high:g}."
    )
    if found.baseline is None:
        return summary
    means, name = found.baseline.overall.rmse, found.baseline.name
    if overall.rmse == means:
        return f"{summary} Its RMSE equals that of the {name} of rows and columns."
    by = format_difference(overall.rmse, means).lstrip("+−±–")
    by = f"{by} {'lower' if overall.rmse < means else 'higher'}".strip()
    return f"{summary} Its RMSE is {by} than that of the {name} of rows and columns."


def _list_cautions(found: Findings) -> list[str]:
    cautions, n_entries = [], found.test.n_entries + found.n_unknown
    if found.n_unknown:
        cautions.append(_describe_unknown(found))
    if found.n_seen:
        cautions.append(
            f"The model has seen {format_count(found.n_seen)} of the {format_count(n_entries)} test entries in "
            "training or when it was extended, so the errors on this page are too small."
        )
    if n_entries < FEW:
        cautions.append(
            f"With only {format_quantity(n_entries, 'test entry')}, the numbers on this page are very uncertain."
        )
    return cautions


def _describe_unknown(found: Findings) -> str:
    n_entries = format_count(found.test.n_entries + found.n_unknown)
    n_unknown = format_count(found.n_unknown)
    unknown = f"Of {n_entries} test entries, {n_unknown} have a row or column that the model does not know"
    by_area = {part.area: part for part in found.measured.areas}
    if UNKNOWN not in by_area:
        return f"{unknown}; this page leaves them out."
    return (
        f"{unknown}. Means predict them with an RMSE of {format_amount(by_area[UNKNOWN].rmse)}; "
        "they count in RMSE and MAE and are an area of their own; the other sections leave them out."
    )


def _list_tiles(found: Findings) -> list[tuple[str, str]]:
    overall = found.measured.overall
    tiles = [("RMSE", format_amount(overall.rmse)), ("MAE", format_amount(overall.mae))]
    if found.baseline is not None:
        tiles.append(
            (f"RMSE against {found.baseline.name}", format_difference(overall.rmse, found.baseline.overall.rmse))
        )
    if found.confusion is not None:
        exact, near = compute_hit_shares(found)
        tiles += [("exactly the right level", format_percent(exact)), ("at most one level off", format_percent(near))]
    return tiles
