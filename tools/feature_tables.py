"""What features are worth on MovieLens, from the committed measurements: tables for the docs, and a picture.

Run by `make format`; a test checks that docs/features.md and its picture agree with the results.
"""

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from deepmf.charts.axes import Frame
from deepmf.charts.chart import Chart, write_chart
from deepmf.charts.lines import dots
from deepmf.charts.panels import panels
from deepmf.charts.series import Series
from deepmf.charts.styles import Style, numbered

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "features.md"
PICTURE = ROOT / "docs" / "pictures" / "features.svg"
NAMES = {"means": "means", "als": "ALS", "dmf-o": "OrdinalDMF"}
DATA = {"ml-1m": "MovieLens-1M", "ml-100k": "MovieLens-100K"}
SIDES = {"rows": "new rows", "columns": "new columns", "both": "both new"}
_FRAME = Frame(width=720.0, height=300.0, left=60.0, bottom=42.0)

Record = dict[str, Any]


def records() -> list[Record]:
    """Return all measurements on test entries."""
    lines = (ROOT / "results" / "benchmarks.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["benchmark"] == "features"]


def tables() -> str:
    """Return the tables: by area, and for rows and columns with few entries; with features below without."""
    parts = []
    for data, title in DATA.items():
        areas = ("I", "II", "III", "IV")
        by_area = _table(data, areas, lambda record, at: record["areas"][at])
        parts.append(f"{title}, errors (RMSE) by area:\n\n{by_area}")
        for side, words in SIDES.items():
            counts = ("0", "1", "2", "5", "10", "20")
            found = _table(data, counts, lambda record, at, side=side: record[side][at])  # type: ignore[misc]
            parts.append(f"{title}, {words} by how many entries are known of each, at most:\n\n{found}")
    parts.append(f"The splits that others publish on (as in the reproduction, OrdinalDMF):\n\n{_published()}")
    return "\n".join(parts)


def _table(data: str, columns: Iterable[str], figure: Callable[[Record, str], float]) -> str:
    columns = list(columns)
    lines = [f"| method | {' | '.join(columns)} |", "| --- " * (len(columns) + 1) + "|"]
    for model, name in NAMES.items():
        for with_features in (False, True):
            own = _of(data, model, "areas", with_features=with_features)
            title = f"{name}, with features" if with_features else name
            lines.append(f"| {title} | {' | '.join(_mean([figure(each, at) for each in own]) for at in columns)} |")
    return "\n".join(lines) + "\n"


def _published() -> str:
    lines = ["| split | without features | with features |", "| --- | --- | --- |"]
    for data, title in (("ml-100k", "MovieLens-100K, u1"), ("ml-1m", "MovieLens-1M, the authors' split")):
        figures = [
            _mean([each["test"] for each in _of(data, "dmf-o", "published", with_features=given)])
            for given in (False, True)
        ]
        lines.append(f"| {title} | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"


def _of(data: str, model: str, split: str, *, with_features: bool) -> list[Record]:
    """Return the latest measurement of each seed."""
    wanted = (data, model, split, with_features)
    by_seed = {
        record["seed"]: record
        for record in records()
        if (record["data"], record["model"], record["split"], record["features"]) == wanted and record["part"] == "test"
    }
    return list(by_seed.values())


def _mean(numbers: list[float]) -> str:
    spread = f" ± {statistics.stdev(numbers):.4f}" if len(numbers) > 1 else ""
    return f"{statistics.mean(numbers):.4f}{spread}"


def picture() -> Chart:
    """Return the error of new rows and of new columns of MovieLens-1M as more of their entries are known."""
    counts = ("0", "1", "2", "5", "10", "20")
    shown: list[tuple[str, Chart]] = []
    legend: list[tuple[Style, str]] = []
    for side in ("columns", "rows"):
        series = []
        for number, (model, given) in enumerate((model, given) for model in NAMES for given in (False, True)):
            own = _of("ml-1m", model, "areas", with_features=given)
            name = NAMES[model] + (", with features" if given else "")
            means = [statistics.mean(record[side][at] for record in own) for at in counts]
            series.append(Series(name, means, numbered(number)))
        title = f"Error for {SIDES[side]} of MovieLens-1M as more of their entries are known"
        chart = dots(
            counts, series, title=title, x_label="known entries of each, at most", y_label="RMSE", frame=_FRAME
        )
        shown.append((SIDES[side], chart))
        legend = [(each.style, each.name) for each in series]
    title = "Errors for new columns and new rows, with features and without"
    return panels(shown, title=title, columns=1, legend=legend, note="mean of five splits")


def written(page: str) -> str:
    """Return the text of the page with the tables as they should be."""
    begin, end = "<!-- benchmark features -->\n", "<!-- end -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{tables()}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    write_chart(picture(), PICTURE)
