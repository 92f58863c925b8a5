"""The report on a model: one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

from deepmf.evaluation.areas import UNKNOWN
from deepmf.evaluation.ranking import RankingEvaluation
from deepmf.formatting import (
    format_amount,
    format_count,
    format_difference,
    format_percent,
    format_quantity,
)
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.report.content import render_page, write_page
from deepmf.report.findings import Findings, find
from deepmf.report.sections import ENOUGH, MEANINGS, SECTIONS, compute_hit_shares, name_group
from deepmf.scoring.pairs import Unknown

# Below this number of test entries, the page warns that its numbers are uncertain.
FEW = 100

# The intervals that the summary speaks of.
_USUAL_COVERAGE = 0.9

# Errors this many times the overall one are worth a sentence.
_NOTABLE = 1.1


def write_report(
    model: Model,
    test: ObservedMatrix,
    path: str | Path,
    *,
    title: str | None = None,
    unknown: Unknown = "error",
    ranking: RankingEvaluation | None = None,
) -> None:
    """Write an HTML page on how a fitted model predicts test entries. The file is replaced only
    when complete.

    Parameters
    ----------
    model : a fitted model, extended by the new rows and columns of the test.
    test : the test entries.
    path : the file to write.
    title : title of the page; default: the model and the number of entries.
    unknown : how to treat entries whose row or column the model does not know, as in `evaluate`.
    ranking : result of `evaluate_ranking`; default: evaluated with its defaults, on a sample of
        rows if there are many.

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
    findings = find(model, test, unknown=unknown, ranking=ranking)
    write_page(render_report(findings, title=title), path)


def render_report(found: Findings, *, title: str | None = None) -> str:
    """Return the HTML of the page."""
    return render_page(
        title
        or f"{found.measured.name} on {format_quantity(found.measured.overall.n_entries, 'test entry')}",
        _summarise(found),
        [section(found) for section in SECTIONS],
        cautions=_list_cautions(found),
        tiles=_list_tiles(found),
    )


def _summarise(found: Findings) -> str:
    """Return five sentences: what the matrix is, how good the model is, against what, how sure,
    and what to watch."""
    sentences = (
        _describe_matrix(found),
        _describe_error(found),
        _compare_with_means(found),
        _describe_certainty(found),
        _find_weakness(found),
    )
    return " ".join(sentences)


def _describe_matrix(found: Findings) -> str:
    shown, scale = found.seen.train.describe(), found.model.scale_
    share = format_percent(shown.n_entries / max(shown.n_rows * shown.n_columns, 1))
    size = (
        f"{format_quantity(shown.n_rows, 'row')} and {format_quantity(shown.n_columns, 'column')}"
    )
    return (
        f"The matrix has {size}; {share} of its cells have an entry, on a scale from "
        f"{scale.low:g} to {scale.high:g}."
    )


def _describe_error(found: Findings) -> str:
    overall = found.measured.overall
    return (
        f"On {format_quantity(overall.n_entries, 'test entry')}, {found.measured.name} is off by "
        f"{format_amount(overall.mae)} on average."
    )


def _compare_with_means(found: Findings) -> str:
    if found.baseline is None:
        return "It is the baseline with which other models are compared."
    means, name = found.baseline.overall.rmse, found.baseline.name
    rmse = found.measured.overall.rmse
    if rmse == means:
        return f"Its RMSE equals that of the {name} of rows and columns."
    by = format_difference(rmse, means).lstrip("+−±–")
    by = f"{by} {'lower' if rmse < means else 'higher'}".strip()
    return f"Its RMSE is {by} than that of the {name} of rows and columns."


def _describe_certainty(found: Findings) -> str:
    if found.calibration is not None:
        expectation = format_percent(found.calibration.wanted_coverage, digits=0)
        inside = format_percent(found.calibration.coverage)
    elif found.intervals:
        by_distance = [abs(part.wanted - _USUAL_COVERAGE) for part in found.intervals]
        usual = found.intervals[by_distance.index(min(by_distance))]
        expectation, inside = format_percent(usual.wanted, digits=0), format_percent(usual.coverage)
    else:
        return "It does not say how sure it is of a prediction."
    return f"Its {expectation} intervals hold {inside} of the test entries."


def _find_weakness(found: Findings) -> str:
    """Return where errors are larger than elsewhere, of parts with enough test entries."""
    areas = [part for part in found.measured.areas[:-1] if part.n_entries >= ENOUGH]
    worst = max(areas, key=lambda part: part.rmse, default=None)
    overall = found.measured.overall.rmse
    if worst is not None and worst.rmse > _NOTABLE * overall:
        meaning = MEANINGS.get(worst.area, worst.area)
        return (
            f"Watch area {worst.area} ({meaning}), where its RMSE is {format_amount(worst.rmse)}."
        )
    histories = [part for part in found.measured.cold_start if part.n_entries >= ENOUGH]
    worst_history = max(histories, key=lambda part: part.rmse, default=None)
    if worst_history is not None and worst_history.rmse > _NOTABLE * overall:
        known = name_group(worst_history.first, worst_history.last)
        rmse = format_amount(worst_history.rmse)
        return f"Watch rows with {known} known entries, where its RMSE is {rmse}."
    return "No area and no group of rows has errors far above the others."


def _list_cautions(found: Findings) -> list[str]:
    n_entries = found.test.n_entries + found.n_unknown
    shown, unknown = (
        format_count(n_entries),
        {part.area: part for part in found.measured.areas}.get(UNKNOWN),
    )
    cautions = []
    if found.n_unknown:
        outcome = "this page leaves them out"
        if unknown is not None:
            outcome = f"means predict them with an RMSE of {format_amount(unknown.rmse)}, as an area of their own"
        n_unknown = format_count(found.n_unknown)
        cautions.append(
            f"Of {shown} test entries, {n_unknown} have a row or column that the model does not know; {outcome}."
        )
    if found.n_seen:
        cautions.append(
            f"The model has seen {format_count(found.n_seen)} of the {shown} test entries in training or when it was "
            "extended, so the errors on this page are too small."
        )
    if n_entries < FEW:
        cautions.append(
            f"With only {format_quantity(n_entries, 'test entry')}, the numbers on this page are very uncertain."
        )
    return cautions


def _list_tiles(found: Findings) -> list[tuple[str, str]]:
    overall = found.measured.overall
    tiles = [("RMSE", format_amount(overall.rmse)), ("MAE", format_amount(overall.mae))]
    if found.baseline is not None:
        tiles.append(
            (
                f"RMSE against {found.baseline.name}",
                format_difference(overall.rmse, found.baseline.overall.rmse),
            )
        )
    if found.confusion is not None:
        exact, near = compute_hit_shares(found)
        tiles += [
            ("exactly the right level", format_percent(exact)),
            ("at most one level off", format_percent(near)),
        ]
    return tiles
