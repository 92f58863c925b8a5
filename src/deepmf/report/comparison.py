"""The page of a comparison: several models on the same splits, best first, and how far the order may be chance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepmf.charts.wording import amount, count, counted, difference
from deepmf.report.compared_models import ALL, ComparedModel, Comparison
from deepmf.report.comparison_sections import SECTIONS, with_margin
from deepmf.report.content import LeftOut, Section, shortened
from deepmf.report.rendering import rendered
from deepmf.storage.atomic import write_atomically


def write_comparison(
    models: Sequence[ComparedModel], path: str | Path, *, title: str | None = None, data: str = ""
) -> None:
    """Write the page that compares models on the same splits to a file, whole or not at all.

    `data` says in a sentence what they were compared on.
    """
    page = comparison_page(models, title=title, data=data)
    # A name may hold half a character, which no file can.
    write_atomically(path, lambda temporary: temporary.write_bytes(page.encode("utf-8", errors="replace")))


def comparison_page(models: Sequence[ComparedModel], *, title: str | None = None, data: str = "") -> str:
    """Return the page that compares models on the same splits; it loads nothing from anywhere.

    >>> from deepmf.evaluation.area_evaluation import AreaErrors
    >>> errors = {"Means": 0.9, "ALS": 0.8}
    >>> models = [ComparedModel(name, [[AreaErrors("I", 50, e, e, None, None)]]) for name, e in errors.items()]
    >>> "ALS has the lowest RMSE, 0.800" in comparison_page(models)
    True
    """
    compared = Comparison(models)
    made = [section(compared) for section in SECTIONS]
    return rendered(
        "page.html",
        title=title or f"{counted(len(compared.models), 'model')} compared",
        summary=" ".join(filter(None, [_summary(compared), data])),
        cautions=_cautions(compared),
        tiles=_tiles(compared),
        sections=[part for part in made if isinstance(part, Section)],
        left_out=[part for part in made if isinstance(part, LeftOut)],
    )


def _summary(compared: Comparison) -> str:
    """Return which model is best, which comes next, and whether that may be chance."""
    area, best = compared.main_area, compared.best
    lowest = compared.error(best, area)
    assert lowest is not None
    where = "" if area == ALL or len(compared.areas) == 1 else f" in area {area}"
    over = f" over {compared.n_splits} splits" if compared.n_splits > 1 else ""
    summary = f"{shortened(best.name)} has the lowest RMSE{where}, {with_margin(lowest)}{over}."
    if len(compared.models) == 1:
        return summary
    second = compared.models[1]
    found, above = second.error(area), second.above(best, area)
    assert found is not None
    assert above is not None
    next_one = f"{shortened(second.name)} comes next with {amount(found.mean)} ({difference(found.mean, lowest.mean)})"
    if above.margin is not None and above.mean < 2 * above.margin:
        next_one += ", which may be chance: the difference is less than twice its standard error"
    return f"{summary} {next_one}."


def _cautions(compared: Comparison) -> list[str]:
    if compared.n_splits > 1 or len(compared.models) == 1:
        return []
    return [
        "All models were tested on a single split: small differences may be chance, which several splits would show."
    ]


def _tiles(compared: Comparison) -> list[tuple[str, str]]:
    lowest = compared.error(compared.best, compared.main_area)
    n_entries = [max(part.n_entries for part in split) for split in compared.best.areas]
    one = compared.n_splits == 1
    return [
        ("models", count(len(compared.models))),
        ("split" if one else "splits", count(compared.n_splits)),
        ("test entries" if one else "test entries per split", count(sum(n_entries) / len(n_entries))),
        ("lowest RMSE", amount(None if lowest is None else lowest.mean)),
    ]
