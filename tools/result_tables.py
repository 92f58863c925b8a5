"""Write the tables of the README and the docs from the committed results, between lines like `<!-- table table1 -->`.

Run by `make format`; a test checks that the pages agree with the results.
"""

import json
import re
from pathlib import Path

from deepmf.experiments.recipe import read_table
from deepmf.experiments.remarks import notes
from deepmf.experiments.result_table import Cell, cells, costs, markdown, uses_of_validation
from deepmf.experiments.results import Results
from deepmf.experiments.search import best_of
from deepmf.experiments.search import candidates as candidates_of
from deepmf.experiments.trial import Record

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "reproduction.md",
    ROOT / "docs" / "sklearn.md",
    ROOT / "docs" / "performance.md",
    ROOT / "docs" / "peers.md",
)
BLOCK = re.compile(r"(<!-- (table|costs|search|summary|benchmark|peers) ([\w/-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
# The rows of the README's short table, at one share of new rows and columns.
SUMMARY = ("dmf-o", "als", "i-autorec", "dmf", "means")
NEW_SHARE = 0.2
NOTHING_YET = "There are no results yet.\n"


def block(kind: str, table: str) -> str:
    """Return what stands in a block of a page: a table with its notes, its cost, or how its settings were chosen."""
    if kind == "peers":
        kept = RESULTS / "peers" / f"{table}.md"
        return f"\n{kept.read_text(encoding='utf-8') if kept.exists() else NOTHING_YET}\n"
    if kind == "benchmark":
        return f"\n{defaults() if table == 'defaults' else errors_by_table(table)}\n"
    recipes = read_table(table)
    if kind == "search":
        searched = [recipe for recipe in recipes if recipe.search]
        names = [trial.recipe for recipe in searched for trial in candidates_of(recipe)]
        return best_of(searched, Results(RESULTS / "search").records(names))
    records = Results(RESULTS).records(recipes)
    if not records:
        return f"\n{NOTHING_YET}\n"
    if kind == "costs":
        return f"\n{costs(records)}\n"
    if kind == "summary":
        return f"\n{summary(table, records)}\n"
    said = "".join(f"- {note}\n" for note in notes(table, records))
    return f"\n{markdown(table, records)}\n{said}\n"


def errors_by_table(benchmark: str) -> str:
    """Return the errors of a benchmark, the latest of each of its tables, with the lowest of a line in bold."""
    lines = (RESULTS / "benchmarks.jsonl").read_text(encoding="utf-8").splitlines()
    records = {record["table"]: record for record in map(json.loads, lines) if record["benchmark"] == benchmark}
    names = list(next(iter(records.values()))["errors"])
    written = [f"| table | hidden | {' | '.join(names)} | chosen |", "| --- " * (len(names) + 3) + "|"]
    for record in records.values():
        figures = [short_error(record["errors"][name], best=min(record["errors"].values())) for name in names]
        size = "" if "generated" in record["table"] else ", {} x {}".format(*record["shape"])
        chosen = " or ".join(dict.fromkeys(record["chosen"]))
        written.append(
            f"| {record['table']}{size} | {100 * record['hidden']:.0f} % | {' | '.join(figures)} | {chosen} |"
        )
    return "\n".join(written) + "\n"


def defaults() -> str:
    """Return the errors and costs of OrdinalDMF by default beside ALS and the means: the latest of each matrix."""
    lines = (RESULTS / "benchmarks.jsonl").read_text(encoding="utf-8").splitlines()
    found = [record for record in map(json.loads, lines) if record["benchmark"] == "defaults"]
    records = {(record["matrix"], record["gpu"] is None, record["effort"]): record for record in found}
    written = [
        "| matrix | means | ALS | OrdinalDMF | seconds: ALS, OrdinalDMF | calibration error | in 90 % intervals | on |",
        "| --- " * 8 + "|",
    ]
    for (matrix, on_cpu, effort), record in sorted(records.items(), key=lambda item: item[1]["entries"]):
        figures = [f"{record['rmse'][name]:.4f}" for name in ("means", "als", "dmf-o")]
        seconds = ", ".join(f"{record['seconds'][name]:.1f}" for name in ("als", "dmf-o"))
        calibrated = f"{record['calibration_error']:.3f}" if "calibration_error" in record else "-"
        where = f"CPU, threads: {record['threads']}" if on_cpu else record["gpu"]
        name = matrix if effort == "normal" else f"{matrix}, {effort} effort"
        inside = f"{100 * record['coverage']:.1f} %"
        written.append(f"| {name} | {' | '.join(figures)} | {seconds} | {calibrated} | {inside} | {where} |")
    return "\n".join(written) + "\n"


def short_error(error: float, *, best: float) -> str:
    """Return an error in three digits."""
    shown = f"{error:.3f}".removeprefix("0")
    return f"**{shown}**" if error == best else shown


def summary(table: str, records: list[Record]) -> str:
    """Return a few rows of a table by area, and what one fit took; all of them must use validation entries alike."""
    names = [f"{table}/{name}" for name in SUMMARY]
    uses = {use for name, use in uses_of_validation(table, records).items() if name in names}
    assert uses == {"choose"}, f"the summary says that validation entries only choose the epoch; rows differ: {uses}"
    found = {(cell.recipe.name, cell.area): cell for cell in cells(table, records) if cell.new_share == NEW_SHARE}
    lines = ["| method | area I | area II | area III | area IV | one fit |", "| --- | --- | --- | --- | --- | --- |"]
    for name in names:
        own = [record for record in records if record["recipe"] == name and "curve" in record]
        mean = sum(record["seconds"] for record in own) / len(own)
        seconds = f"{mean:.1f} s" if mean >= 0.1 else "under 0.1 s"
        figures = [short(found[name, area]) for area in ("I", "II", "III", "IV")]
        title = found[name, "I"].recipe.title.removesuffix(" (control)")
        fit = f"{seconds}, {own[0]['hardware'].replace('CPU, 1 threads', 'one CPU thread')}"
        lines.append(f"| {' | '.join([title, *figures, fit])} |")
    return "\n".join(lines) + "\n"


def short(cell: Cell) -> str:
    """Return mean and spread of a figure in three digits."""
    return "-" if cell.mean is None else f"{cell.mean:.3f} ± {cell.spread:.3f}"


def written(page: str) -> str:
    """Return a page's text with every block as it should be."""
    return BLOCK.sub(lambda found: found[1] + block(found[2], found[3]) + found[4], page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
