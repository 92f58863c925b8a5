"""Write the tables and figures of the README, the docs and results/README.md from the committed
results.

A table stands between lines like `<!-- table table1 -->` and `<!-- end -->`, a figure within a
sentence between `<!-- value table1/dmf 20% I -->` and `<!-- end -->` (see `value`). A row whose
code has changed since it was measured has a dagger, and so has one whose commit is not in the git
history. `make format` runs this script; a test compares the pages with the results, without the
daggers.
"""

import ast
import functools
import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from deepmf.experiments.recipe import METRICS, read_table
from deepmf.experiments.run import Record, Results
from deepmf.experiments.source import PACKAGE, run_git
from deepmf.experiments.tables import format_markdown
from deepmf.matrix.matrix import AREAS
from deepmf.models.registry import MODELS
from deepmf.plots import add_legend, add_title, make_axes, plot_cold_start, render_svg

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = (ROOT / "README.md", RESULTS / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"(<!-- (table|benchmark|peers) ([\w/-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOTHING_YET = "There are no results yet.\n"
VALUE = re.compile(r"(<!-- value ([^>]*?) -->)[^<]*(<!-- end -->)")
OLDER = "† Measured before a later change of the code."
ALL_OLDER = "Later commits changed code of all these methods."
IMPUTER = "deepmf.sklearn.imputer"
OURS = ("auto", "gaussian", "als", "dmf-o")  # models of the imputer among imputers
GONE = {"neighbours"}  # models that the imputer had
# Columns and rows that only the tables in results/ show.
# Tasks side by side in one table: what heads their columns, and which columns.
JOINED_PEERS = {
    "known": {
        "ml-1m-authors": (
            "MovieLens-1M",
            ("RMSE", "log loss", "calibration error", "processor seconds"),
        ),
        "ml-100k-folds": ("MovieLens-100K", ("RMSE", "processor seconds")),
    },
    "rankings": {
        "ml-100k-ranking-known": ("MovieLens-100K, known rows", ("NDCG@10", "processor seconds")),
        "ml-100k-ranking-new": ("new rows", ("NDCG@10",)),
        "ml-1m-ranking-known": ("MovieLens-1M, known rows", ("NDCG@10", "processor seconds")),
        "ml-1m-ranking-new": ("new rows", ("NDCG@10",)),
    },
}
PEER_COLUMNS_LEFT_OUT = (
    "MAE",
    "MiB",
    "log loss, area I",
    "recall@20",
    "recall@10",
    "precision@10",
    "MRR@10",
    "MAP@10",
    "novelty, bits",
)
COLUMNS_LEFT_OUT = dict.fromkeys(("u1", "random"), ("validation entries", "MAE", "RMSE of levels"))
ROWS_LEFT_OUT = {"table1": " | 10% | ", "u1": ", median levels | ", "random": ", median levels | "}
# Of the measurements of what features are worth.
FEATURE_PICTURE = ROOT / "docs" / "pictures" / "features.svg"
NAMES = {"means": "means", "als": "ALS", "dmf-o": "OrdinalDMF"}
DATA = {"ml-1m": "MovieLens-1M", "ml-100k": "MovieLens-100K"}
SIDES = {"rows": "new rows", "columns": "new columns", "both": "both new"}
PROTOCOLS = {
    ("ml-100k", "published"): "MovieLens-100K, u1",
    ("ml-1m", "published"): "MovieLens-1M, the authors' split",
    ("ml-1m", "random"): "MovieLens-1M, 90 / 10 at random",
}


def block(kind: str, table: str) -> str:
    """Return what stands in a block of a page: a table with its notes."""
    if kind == "peers":
        return f"\n{peers(table)}\n"
    if kind == "benchmark":
        own = {
            "defaults": defaults,
            "features": feature_tables,
            "coverage": coverage_table,
            "imputers": imputers_table,
            "imputers_summary": imputers_summary,
            "recommending": recommending_table,
            "recommending_areas": recommending_areas,
            "density": density_table,
            "recommending_latency": ranking_times,
            "fields": fields_table,
        }
        return f"\n{own[table]()}\n"
    recipes = read_table(table)
    records = Results(RESULTS).records(recipes)
    if not records:
        return f"\n{NOTHING_YET}\n"
    older = older_recipes(records)
    titles = [recipe.title for recipe in recipes if recipe.name in older]
    written = shorten_table(table, format_markdown(table, records))
    shown = mark_rows(written, [*titles, *(f"{title}, median levels" for title in titles)])
    return f"\n{shown}\n{footnote(records, older=bool(older))}\n"


def is_older(commit: str, *models: str) -> bool:
    """Return whether the code of a model has changed since the commit of a record, or the commit is
    unknown."""
    return any(has_changed_since(commit, MODELS[model].module) for model in models)


def older_recipes(records: Iterable[Record]) -> set[str]:
    """Return the recipes with records that are older than the code they measure."""
    return {
        record["recipe"]
        for record in records
        if is_older(record.get("commit", ""), record["model"])
    }


def mark_rows(table: str, titles: Sequence[str]) -> str:
    """Put a dagger behind the first cell of some rows of a Markdown table."""
    starts = tuple(f"| {title} |" for title in titles)
    lines = table.split("\n")
    return "\n".join(
        line.replace(" |", " † |", 1) if line.startswith(starts) else line for line in lines
    )


def strip_marks(page: str) -> str:
    """Remove all daggers and their explanations, which depend on the git history of the
    checkout."""
    return page.replace(f" {OLDER}", "").replace(f" {ALL_OLDER}", "").replace(" †", "")


def gather_marks(shown: str) -> str:
    """Say once what the daggers of a block say, where each row that can have one has it."""
    lines = shown.splitlines()
    rows = [
        line
        for line, after in pairwise([*lines, ""])
        if line.startswith("| ") and not line.startswith("| ---") and not after.startswith("| ---")
    ]
    others = ("| deepmf", "| **auto", "| impute_many |")  # tables with rows of other libraries
    if any(start in shown for start in others):
        rows = [row for row in rows if is_ours(row)]
    if not rows or any(" † |" not in row for row in rows):
        return shown
    return shown.replace(" †", "").replace(OLDER.removeprefix("†"), f" {ALL_OLDER}")


def is_ours(row: str) -> bool:
    """Return whether a row beside those of other libraries was made by a model of deepmf."""
    title, method = (cell.strip(" *†") for cell in row.split("|")[1:3])
    if method in ("IterativeImputer", "miceforest") or title.endswith(", by value"):
        return False
    return title.startswith("deepmf") or title in OURS or method == "impute_many"


def footnote(records: Iterable[Record], *, older: bool = False) -> str:
    """Return a line with the commits that measured the records, and the meaning of a dagger if
    there is one."""
    commits = list(dict.fromkeys(record.get("commit") or "unknown" for record in records))
    known = ", ".join(commits[:-1]) + (" and " if commits[1:] else "") + commits[-1]
    return (
        f"Measured with commit{'s' if commits[1:] else ''} {known}.{f' {OLDER}' if older else ''}\n"
    )


def keep_columns(table: str, is_kept: Callable[[str], bool]) -> str:
    """Return a Markdown table with some of its columns, by their names."""
    rows = [line.strip("| ").split(" | ") for line in table.strip().split("\n")]
    kept = [at for at, name in enumerate(rows[0]) if is_kept(name)]
    return "\n".join(f"| {' | '.join(row[at] for at in kept)} |" for row in rows) + "\n"


def shorten_table(table: str, shown: str) -> str:
    """Leave out rows and columns that a page does not show."""
    left_out = ROWS_LEFT_OUT.get(table)
    lines = [line for line in shown.strip().split("\n") if left_out is None or left_out not in line]
    return keep_columns("\n".join(lines), lambda name: name not in COLUMNS_LEFT_OUT.get(table, ()))


def shorten_peers(shown: str) -> str:
    """Keep one table: means over splits if every method has them, else the first split; and the
    columns that decide."""
    parts = [part.strip() for part in shown.split("\n\n") if part.startswith("| method")]
    first, *rest = parts
    complete = [part for part in rest if part.count("\n") == first.count("\n") and "±" in part]
    kept = complete[0] if complete and "area" not in first.split("\n")[0] else first
    return keep_columns(
        kept, lambda name: name not in PEER_COLUMNS_LEFT_OUT and "level" not in name
    )


def peers(table: str) -> str:
    """Return a table of the comparison with other libraries, with commits of our rows and the loads
    that all ran at."""
    if table in JOINED_PEERS:
        shown, tasks = join_peers(JOINED_PEERS[table]), list(JOINED_PEERS[table])
    else:
        kept = RESULTS / "peers" / f"{table}.md"
        if not kept.exists():
            return NOTHING_YET
        shown, tasks = kept.read_text(encoding="utf-8"), ["size-*" if table == "sizes" else table]
    if table == "not-run":
        return shown
    paths = [
        path
        for task in tasks
        for path in sorted((RESULTS / "peers" / "runs").glob(f"{task}/*.json"))
    ]
    runs = [run for run in map(_json, paths) if not run["failure"]]
    ours, others = (
        [run for run in runs if run["title"].startswith("deepmf") == own] for own in (True, False)
    )
    older = {run["title"] for run in ours if has_changed_since(run["commit"], _module_of(run))}
    said = footnote(ours, older=bool(older)).replace("Measured", "deepmf: measured", 1)
    said += f"Median load of the machine: deepmf {_loads(ours)}, others {_loads(others)}.\n"
    if table == "sizes":
        shown = keep_columns(shown, lambda name: not name.endswith(("RMSE", "seconds")))
    elif shown.startswith("On the first split"):
        shown = shorten_peers(shown)
    return f"{mark_rows(shown, sorted(older))}\n{said}"


def join_peers(tasks: dict[str, tuple[str, tuple[str, ...]]]) -> str:
    """Return one table of several tasks, with the rows in the order of the first."""
    tables = []
    for task, (title, columns) in tasks.items():
        shown = shorten_peers((RESULTS / "peers" / f"{task}.md").read_text(encoding="utf-8"))
        header, *rows = keep_columns(shown, {"method", *columns}.__contains__).strip().split("\n")
        header = header.replace(columns[0], f"{title}: {columns[0]}")
        tables.append(
            {
                line.split(" | ")[0]: line.removesuffix(" |").split(" | ")[1:]
                for line in (header, *rows)
            }
        )
    lines = []
    for name in dict.fromkeys(name for table in tables for name in table):
        cells = [
            cell for table in tables for cell in table.get(name, ["-"] * len(table["| method"]))
        ]
        lines.append(" | ".join([name, *cells]) + " |")
    return "\n".join(lines) + "\n"


def _loads(runs: Iterable[Record]) -> str:
    """Return the median, the lowest and the highest load that runs began at."""
    loads = [run["load_before"] for run in runs]
    return f"{statistics.median(loads):.0f} ({min(loads):.0f} to {max(loads):.0f})"


def _module_of(run: Record) -> str:
    """Return the module of the model that a run of deepmf measured."""
    classes = {each.class_name: each.module for each in MODELS.values()}
    return classes.get(run["settings"].get("model", "")) or IMPUTER


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def with_footnote(lines: list[str], records: Iterable[Record]) -> str:
    """Return the lines of a table with its footnote."""
    return "\n".join([*lines, "", footnote(records, older=any(" † |" in line for line in lines))])


def benchmarks(name: str) -> list[Record]:
    """Return the records of a benchmark, the oldest first."""
    lines = (RESULTS / "benchmarks.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["benchmark"] == name]


def defaults() -> str:
    """Return errors and costs by default: the latest of each matrix, without the splits of the
    paper's tables."""
    found = [
        record
        for record in benchmarks("defaults")
        if not record["matrix"].endswith((", u1", "authors' split"))
    ]
    records = {
        (record["matrix"], record["gpu"] is None, record["effort"]): record for record in found
    }
    written = [
        "| matrix | means | ALS | OrdinalDMF | seconds: ALS, OrdinalDMF | calibration error | in 90 % interval | on |",
        "| --- " * 8 + "|",
    ]
    for (matrix, on_cpu, effort), record in sorted(
        records.items(), key=lambda item: item[1]["entries"]
    ):
        figures = [f"{record['rmse'][name]:.4f}" for name in ("means", "als", "dmf-o")]
        seconds = ", ".join(f"{record['seconds'][name]:.1f}" for name in ("als", "dmf-o"))
        calibrated = f"{record['calibration_error']:.3f}" if "calibration_error" in record else "-"
        where = (
            f"CPU, threads: {record['threads']}"
            if on_cpu
            else record["gpu"].removeprefix("NVIDIA ")
        )
        name = matrix if effort == "normal" else f"{matrix}, {effort} effort"
        name += " †" if is_older(record["commit"], "means", "als", "dmf-o") else ""
        inside = f"{100 * record['coverage']:.1f} %"
        written.append(
            f"| {name} | {' | '.join(figures)} | {seconds} | {calibrated} | {inside} | {where} |"
        )
    return with_footnote(written, records.values())


def coverage_table() -> str:
    """Return how often pooled 95 % intervals hold the truth: the latest of each kind, mechanism and
    method."""
    latest = {
        (record["kind"], record["method"], record["mechanism"]): record
        for record in benchmarks("coverage")
        if "width" in record
    }
    mechanisms, methods = ("mcar", "mar", "mnar"), ("impute_many", "IterativeImputer", "miceforest")
    written = [f"| table | method | repetitions | {' | '.join(mechanisms)} |", "| --- " * 6 + "|"]
    for kind in dict.fromkeys(key[0] for key in latest):
        for method in methods:
            own = {
                each: latest[kind, method, each]
                for each in mechanisms
                if (kind, method, each) in latest
            }
            if own:
                shown = [
                    _show_coverage(own[each], latest[kind, "complete", each])
                    if each in own
                    else "-"
                    for each in mechanisms
                ]
                mark = _mark_imputer(own.values()) if method == "impute_many" else ""
                counts = "/".join(
                    map(str, sorted({record["repetitions"] for record in own.values()}))
                )
                written.append(f"| {kind}{mark} | {method} | {counts} | {' | '.join(shown)} |")
    return with_footnote(
        written, [record for key, record in latest.items() if key[1] != "complete"]
    )


def _show_coverage(record: Record, complete: Record) -> str:
    """Return percentages of means, correlations and coefficients, the largest bias, and widths
    beside complete ones."""
    shares = ", ".join(
        f"{100 * record['coverage'][sort]:.0f}" for sort in ("mean", "correlation", "coefficient")
    )
    bias = max(abs(each) for each in record["bias"].values())
    width = statistics.mean(
        record["width"][name] / each for name, each in complete["width"].items()
    )
    return f"{shares}; {bias:.1f}; {width:.2f}"


def _mark_imputer(records: Iterable[Record]) -> str:
    """Return a dagger if the code of the imputer may have changed since a record."""
    return " †" if any(has_changed_since(each["commit"], IMPUTER) for each in records) else ""


def imputers_table() -> str:
    """Return the errors of imputers by table, the latest of each, and their time as a multiple of
    ours in one run."""
    latest: dict[str, dict[str, Record]] = {}  # by imputer and table
    slow: set[tuple[str, str]] = set()
    for record in sorted(
        benchmarks("imputers") + benchmarks("other_imputers"), key=lambda each: each["time"]
    ):
        for name in record["errors"]:
            if name not in GONE:
                latest.setdefault(name, {})[record["table"]] = record
        slow |= {(name, record["table"]) for name in record.get("unfinished", ())}
    tables = list(latest["auto"])
    best = {
        table: min(own[table]["errors"][name] for name, own in latest.items() if table in own)
        for table in tables
    }
    titles = [table.removeprefix("generated, ").removeprefix("generated ") for table in tables]
    written = [f"| imputer | {' | '.join(titles)} | time |", "| --- " * (len(tables) + 2) + "|"]
    for name in sorted(latest, key=lambda each: each != "auto"):
        own, times = latest[name], []
        for record in own.values():
            spent = (
                record["processor_seconds"] if "processor_seconds" in record else record["seconds"]
            )
            times += [spent[name] / spent["auto"]] if spent.get("auto") else []
        cells = [
            short_error(own[table]["errors"][name], best=best[table])
            if table in own
            else ("slow" if (name, table) in slow else "-")
            for table in tables
        ]
        mark = _mark_imputer(own.values()) if name in OURS else ""
        title = "**auto**" if name == "auto" else name
        written.append(f"| {title}{mark} | {' | '.join(cells)} | {_show_times(times)} |")
    return with_footnote(written, [record for own in latest.values() for record in own.values()])


def imputers_summary() -> str:
    """Return the errors of six imputers, for a page that shows no commits."""
    shown = (
        "| imputer",
        "| ---",
        "| **auto**",
        "| SimpleImputer",
        "| KNNImputer",
        "| Iter",
        "| missF",
        "| micef",
    )
    lines = [line for line in strip_marks(imputers_table()).splitlines() if line.startswith(shown)]
    return keep_columns("\n".join(lines), lambda name: name != "time")


def _show_times(times: list[float]) -> str:
    """Return the median, the lowest and the highest of multiples of a time."""
    median, lowest, highest = (
        f"{each:.0f}" if each >= 10 else f"{each:.2g}"
        for each in (statistics.median(times), min(times), max(times))
    )
    return median if lowest == highest else f"{median} ({lowest} to {highest})"


RANKED = {"als": "ALS", "dmf-o": "OrdinalDMF", "bayesian": "BayesianMF"}
ORDERS = ("relevance", "value", "popularity")


def recommending_records() -> dict[tuple[str, str, int], Record]:
    """Return the latest measurement of recommendations on MovieLens-1M by model, machine and
    seed."""
    return {
        (record["model"], record["gpu"] or "CPU", record["seed"]): record
        for record in benchmarks("recommending")
        if "relevance" in record and record["data"] == "ml-1m"
    }


def recommending_table() -> str:
    """Return the NDCG@10 of recommendations on MovieLens-1M, by model and machine."""
    records = recommending_records()
    head = ("NDCG@10", "seeds", *ORDERS, "distinct columns", "seconds")
    written = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for model, name in RANKED.items():
        for where in dict.fromkeys(key[1] for key in records if key[0] == model):
            own = [record for key, record in sorted(records.items()) if key[:2] == (model, where)]
            ndcg = {order: [record[order]["ndcg"] for record in own] for order in ORDERS}
            cells = [f"{name}, {where}{_mark(own)}", str(len(own))]
            cells += [_show_mean(ndcg["relevance"], spread=True), _show_mean(ndcg["value"])]
            cells += [
                _show_mean(ndcg["popularity"]),
                _show_range([record["relevance"]["distinct"] for record in own]),
            ]
            written.append(
                f"| {' | '.join([*cells, _show_range([record['fit_seconds'] for record in own])])} |"
            )
    return with_footnote(written, records.values())


def recommending_areas() -> str:
    """Return the NDCG@10 of recommendations to new rows and of new columns: the latest of each
    seed."""
    records = {record["seed"]: record for record in benchmarks("recommending") if "I" in record}
    written = ["| area | relevance | value | popularity |", "| --- " * 4 + "|"]
    for area in AREAS:
        figures = [
            _show_mean([record[area][order]["ndcg"] for record in records.values()])
            for order in ORDERS
        ]
        written.append(f"| {area}{_mark(records.values())} | {' | '.join(figures)} |")
    return with_footnote(written, records.values())


def density_table() -> str:
    """Return the NDCG@10 of both orders by the density of a matrix: means over the latest of each
    seed."""
    records = {(record["data"], record["seed"]): record for record in benchmarks("density")}
    written = ["| matrix | density | relevance | value |", "| --- " * 4 + "|"]
    for title in dict.fromkeys(title for title, _ in records):
        own = [record for (data, _), record in records.items() if data == title]
        figures = [_show_mean([record["test"][order] for record in own]) for order in ORDERS[:2]]
        density = statistics.mean(record["density"] for record in own)
        written.append(
            f"| {title.replace('ml-100k', DATA['ml-100k'])}{_mark(own)} | {density:.0%} | {' | '.join(figures)} |"
        )
    return with_footnote(written, records.values())


# The metric of a task of `benchmarks/fields.py`, its digits, and what others publish.
FIELD_TASKS = {
    "birmingham RM 40%": ("rmse", 1, "BTMF 18.2, BGCP 25.6"),
    "birmingham RM 60%": ("rmse", 1, "BTMF 25.9, BGCP 27.9"),
    "birmingham NM 40%": ("rmse", 1, "BTMF 69.5, BGCP 74.3"),
    "wheat": ("right", 3, "the most frequent level: .751"),
    "nuclear receptors, pairs": ("area", 3, "mean of the three: .574"),
    "nuclear receptors, new drugs": ("area", 3, ""),
    "nuclear receptors, new targets": ("area", 3, ""),
}
FIELD_METRICS = {"rmse": "RMSE", "right": "share right", "area": "area under precision and recall"}


@functools.cache
def field_records() -> dict[tuple[str, str], Record]:
    """Return the latest measurement of each model and task of other fields."""
    lines = (RESULTS / "fields.jsonl").read_text(encoding="utf-8").splitlines()
    return {(record["model"], record["task"]): record for record in map(json.loads, lines)}


def fields_table() -> str:
    """Return the figures of other fields beside what others publish."""
    records = field_records()
    models = "OrdinalDMF", "BayesianMF", "DMFImputer"
    written = [f"| task | {' | '.join(models)} | others |", "| --- " * 5 + "|"]
    for task, (metric, digits, published) in FIELD_TASKS.items():
        found = [records.get((model, task)) for model in models]
        if not any(found):
            continue
        cells = [
            f"{record[metric]:.{digits}f}".removeprefix("0") if record else "-" for record in found
        ]
        name = f"{task.replace('%', ' %')}, {FIELD_METRICS[metric]}"
        written.append(f"| {name} | {' | '.join(cells)} | {published} |")
    return with_footnote(written, records.values())


def ranking_times() -> str:
    """Return how long the ten best columns take by value and by relevance: the latest of each
    machine."""
    record = benchmarks("recommending_latency")[-1]
    orders = {"without": "value, without presence", "value": "value", "relevance": "relevance"}
    head = ("milliseconds", *orders.values(), "relevance / without presence")
    written = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for name, what in (
        ("fold_in_ml_1m", "fold in and rank 100 entries of a row, 3,706 columns"),
        ("bulk_ml_1m", "rank one of many rows, 3,706 columns"),
        ("row_million_columns", "rank a row, 10^6 columns"),
    ):
        times = record[name]
        cells = [f"{times[order]:.3g}" for order in orders]
        written.append(
            f"| {what}{_mark([record])} | {' | '.join(cells)} | {times['relevance'] / times['without']:.2f} |"
        )
    return with_footnote(written, [record])


def _show_mean(numbers: Sequence[float], *, spread: bool = False) -> str:
    """Return the mean, with the smallest and the largest if asked for."""
    mean, *ends = (
        f"{number:.4f}".removeprefix("0")
        for number in (statistics.mean(numbers), min(numbers), max(numbers))
    )
    return f"{mean} ({' to '.join(ends)})" if spread and len(numbers) > 1 else mean


def _show_range(numbers: Sequence[float]) -> str:
    """Return the smallest and the largest number, rounded."""
    return " to ".join(dict.fromkeys(f"{number:,.0f}" for number in (min(numbers), max(numbers))))


def short_error(error: float, *, best: float) -> str:
    """Return an error in three digits."""
    shown = f"{error:.3f}".removeprefix("0")
    return f"**{shown}**" if error == best else shown


def value(asked: str) -> str:
    """Return a figure of a sentence: a mean of a table, a difference of two (`-`), or how far one
    is below, in percent.

    A mean is asked for by recipe, share of new rows and columns, area and metric (I and rmse unless
    given), as in `table2/dmf-d level_mae` or `table1/dmf 20% II - table1/dmf-o 20% II`; or of the
    comparison with other libraries by task and peer, as in `peers/ml-1m-authors/ordinal rmse`; or
    of features, as in `features/ml-1m/dmf-o columns 0`, `+` behind a model that reads them; or of
    the NDCG@10 on a CPU or a GPU, as in `recommending/als relevance` or `recommending/dmf-o:H200
    relevance`; or of another benchmark, as in `benchmarks latency explain_ms`. `.3` are its digits,
    4 unless given.
    """
    asked, digits = (
        re.sub(r" \.\d\b", "", asked),
        next(map(int, re.findall(r" \.(\d)\b", asked)), 4),
    )
    if " below " in asked:
        ours, others = map(figure, asked.split(" below "))
        return f"{100 * (1 - ours / others):.1f} %"
    numbers = [figure(part) for part in asked.split(" - ")]
    number = numbers[0] - sum(numbers[1:])
    return f"{number:.{digits}f}".removeprefix("0") if digits else f"{number:.0f}"


@functools.cache
def figure(asked: str) -> float:
    """Return one mean; asking for what was not measured is an error."""
    name, *words = asked.split()
    kind, _, rest = name.partition("/")
    if kind == "peers":
        return _peer_figure(*rest.split("/"), *words)
    if kind == "features":
        return _feature_figure(*rest.split("/"), *words)
    if kind == "recommending":
        model, _, gpu = rest.partition(":")
        place = (model, f"NVIDIA {gpu}" if gpu else "CPU")
        own = [record for key, record in recommending_records().items() if key[:2] == place]
        return float(statistics.mean(record[words[0]]["ndcg"] for record in own))
    if kind == "benchmarks":
        return measurements()[" ".join(words)]
    if kind == "fields":
        *task, metric = words
        return float(field_records()[rest, " ".join(task)][metric])
    share = next(
        (float(word.removesuffix("%")) / 100 for word in words if word.endswith("%")), None
    )
    area = next((word for word in words if word in AREAS), "I")
    metric = next((word for word in words if word in METRICS), "rmse")
    assert len(words) == (share is not None) + (area in words) + (metric in words), (
        f"{asked}: what is meant?"
    )
    found = [
        record[metric]
        for record in table_records(kind)
        if (record["recipe"], record["new_share"], record["area"]) == (name, share, area)
    ]
    return float(statistics.mean(found))


@functools.cache
def table_records(table: str) -> list[Record]:
    return Results(RESULTS).records(read_table(table))


def _peer_figure(task: str, peer: str, metric: str) -> float:
    """Return a score or a cost of the first split."""
    run = _json(RESULTS / "peers" / "runs" / task / f"{peer}-0.json")
    if metric in run:
        return float(run[metric])
    scores = run["scores"]
    group = next(name for name in ("ranking", "I", "cells") if name in scores)
    return float(scores[group][metric])


def _feature_figure(data: str, model: str, part: str, at: str = "") -> float:
    """Return an error by area, of new rows or columns with some entries, or on a published split
    (`test`)."""
    split = "published" if part == "test" else "areas"
    own = feature_records(
        data, model.removesuffix("+"), with_features=model.endswith("+"), split=split
    )
    return float(
        statistics.mean(record[part] if part == "test" else record[part][at] for record in own)
    )


def measurements() -> dict[str, float]:
    """Return every figure of the log by what it is of, such as `reading ints deepmf_seconds`; the
    latest of several."""
    found: dict[str, float] = {}
    for line in (RESULTS / "benchmarks.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        case = next(
            (str(record[name]) for name in ("sizes", "model", "ids") if name in record), None
        )
        subject = " ".join(filter(None, (record["benchmark"], case)))
        for name, value in record.items():
            figures = value.items() if isinstance(value, dict) else [("", value)]
            found |= {
                f"{subject} {name} {part}".strip(): each
                for part, each in figures
                if type(each) in (int, float)
            }
    return found


def feature_records(
    data: str, model: str, *, with_features: bool, split: str = "areas"
) -> list[Record]:
    """Return the latest measurement of each seed of what features are worth."""
    wanted = (data, model, split, with_features, "test")
    keys = ("data", "model", "split", "features", "part")
    own = [
        record for record in benchmarks("features") if tuple(record[key] for key in keys) == wanted
    ]
    return list({record["seed"]: record for record in own}.values())


def feature_tables() -> str:
    """Return what features are worth: by area, and where nothing is new."""
    parts = [f"RMSE by area, MovieLens-1M and MovieLens-100K:\n\n{_feature_table()}"]
    parts.append(f"Known rows and columns, OrdinalDMF:\n\n{_on_known()}")
    shown = "\n".join(parts)
    asked = [(data, model, "areas") for data in DATA for model in NAMES]
    asked += [(data, "dmf-o", split) for data, split in PROTOCOLS]
    runs = (
        feature_records(data, model, with_features=given, split=split)
        for data, model, split in asked
        for given in (False, True)
    )
    return f"{shown}\n{footnote((run for own in runs for run in own), older='†' in shown)}"


def _mark(records: Iterable[Record]) -> str:
    """Return a dagger if records are older than the code they measure."""
    return (
        " †"
        if any(is_older(record["commit"], record.get("model", "als")) for record in records)
        else ""
    )


def _feature_table() -> str:
    titles = [
        f"{title}: {area}" if area == "I" else area for title in ("1M", "100K") for area in AREAS
    ]
    lines = [f"| method | {' | '.join(titles)} |", "| --- " * (len(titles) + 1) + "|"]
    for model, name in NAMES.items():
        for with_features in (False, True):
            runs = [feature_records(data, model, with_features=with_features) for data in DATA]
            title = (f"{name}, with features" if with_features else name) + _mark(
                [*runs[0], *runs[1]]
            )
            figures = [
                _show_mean([each["areas"][area] for each in own]) for own in runs for area in AREAS
            ]
            lines.append(f"| {title} | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"


def _on_known() -> str:
    lines = ["| split | without features | with features |", "| --- | --- | --- |"]
    for (data, split), title in PROTOCOLS.items():
        runs = [
            feature_records(data, "dmf-o", with_features=given, split=split)
            for given in (False, True)
        ]
        figures = [mean_error([each["test"] for each in own]) for own in runs]
        lines.append(f"| {title}{_mark([*runs[0], *runs[1]])} | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"


def mean_error(numbers: list[float]) -> str:
    """Return a mean and its standard deviation."""
    spread = f" ± {statistics.stdev(numbers):.4f}" if len(numbers) > 1 else ""
    return f"{statistics.mean(numbers):.4f}{spread}"


def feature_picture() -> str:
    """Draw the error of new columns and of new rows of MovieLens-1M as more of their entries are
    known."""
    counts = ("0", "1", "2", "5", "10", "20")
    axes = make_axes(2, 1, width=744.0, height=700.0)
    for ax, side in zip(axes, ("columns", "rows"), strict=True):
        errors = {}
        for model, given in ((model, given) for model in NAMES for given in (False, True)):
            own = feature_records("ml-1m", model, with_features=given)
            name = NAMES[model] + (", with features" if given else "")
            errors[name] = [statistics.mean(record[side][at] for record in own) for at in counts]
        plot_cold_start(counts, errors, ax, x_label="known entries of each, at most")
        add_title(ax, SIDES[side])
    add_legend(axes[0], note="mean of five splits")
    title = "Errors for new columns and new rows, with features and without"
    return render_svg(axes[0], title=title, as_file=True)


def render_page(page: str) -> str:
    """Return the text of a page with every block and figure up to date."""
    page = VALUE.sub(lambda found: found[1] + value(found[2]) + found[3], page)
    return BLOCK.sub(
        lambda found: found[1] + gather_marks(block(found[2], found[3])) + found[4], page
    )


# Whether the code of a method has changed since a result was measured

# What a model imports and what does not affect its predictions.
NOT_LEARNING = ("deepmf.errors", "deepmf.files", "deepmf.formatting", "deepmf.lazy", "deepmf.plots")


@functools.cache
def has_changed_since(commit: str, module: str) -> bool:
    """Return whether the code of a method has changed since a commit: its module, what that
    imports, or the data code.

    A file that was only moved has not changed. A commit that is not in the history of the checkout
    counts as older.
    """
    changed = list_changed_files(commit.removesuffix("-changed"))
    return changed is None or not changed.isdisjoint(list_source_files(module))


@functools.cache
def list_source_files(module: str) -> frozenset[Path]:
    """Return the files that a figure of a module depends on: its own, those it imports at any
    depth, and `data/`."""
    found = set((PACKAGE / "data").rglob("*.py"))
    pending = [module, *(name for path in found for name in _list_imports(path))]
    while pending:
        name = pending.pop()
        path = (
            _find_file(name)
            if name.startswith("deepmf.") and not name.startswith(NOT_LEARNING)
            else None
        )
        if path is not None and path not in found:
            found.add(path)
            pending += _list_imports(path)
    return frozenset(found)


@functools.cache
def _list_imports(path: Path) -> frozenset[str]:
    """Return the names that a file imports; of `from a import b` both a.b, which may be a module,
    and a."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return frozenset(found)


def _find_file(module: str) -> Path | None:
    place = PACKAGE.parent / module.replace(".", "/")
    return next(
        (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists()), None
    )


@functools.cache
def list_changed_files(commit: str, folder: Path = PACKAGE) -> frozenset[Path] | None:
    """Return the files that have changed since a commit; None if the commit is not in the history.

    Commits whose message has a line `Results: the same, since ...` do not count.
    """
    if not commit or not run_git(
        "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}", folder=folder
    ):
        return None
    root = Path(run_git("rev-parse", "--show-toplevel", folder=folder))
    lines = run_git(
        "diff", "--name-status", "-M", commit, "--", str(folder), folder=folder
    ).splitlines()
    # M path; R087 old new; R100 for a file that was only moved
    changes = [line.split("\t") for line in lines]
    changed = {paths[-1] for status, *paths in changes if status != "R100"}
    log = (
        "log",
        "-c",
        "--name-only",
        "--format=%x00%(trailers:key=Results,valueonly)",
        f"{commit}..HEAD",
    )
    logged = [
        each.strip().splitlines()
        for each in run_git(*log, "--", str(folder), folder=folder).split("\0")
    ]
    counted = {
        path for lines in logged for path in lines if not lines[0].startswith("the same, since ")
    }
    counted |= set(
        run_git("diff", "--name-only", "HEAD", "--", str(folder), folder=folder).splitlines()
    )
    return frozenset(root / path for path in changed & counted)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(render_page(path.read_text(encoding="utf-8")), encoding="utf-8")
    FEATURE_PICTURE.write_text(feature_picture(), encoding="utf-8")
