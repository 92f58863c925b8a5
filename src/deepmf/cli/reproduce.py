"""`deepmf reproduce`: run a table of the paper, from the data to the plots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from deepmf.cli.options import Device, Json, argument, option
from deepmf.cli.output import say, show_json, show_share, show_table
from deepmf.errors import FileAbsent

QUICK = "A QUICK RUN on generated data, to check that everything works: these are not the results."


def reproduce(
    table: Annotated[str, argument("TABLE", "Table to run, such as table1 or table2.")],
    out: Annotated[
        Path | None, option("--out -o FOLDER", "Folder of the results; default: reproduced.")
    ] = None,
    only: Annotated[
        list[str] | None,
        option("--only ROW", "Run only this row of the table, such as dmf; repeatable."),
    ] = None,
    splits: Annotated[int | None, option("--splits N", "Run only the first N splits.")] = None,
    jobs: Annotated[int, option("--jobs N", "Number of fits that run in parallel.")] = 1,
    device: Device = None,
    quick: Annotated[
        bool, option("--quick", "Run on generated data, offline, in a few minutes.")
    ] = False,
    from_results: Annotated[
        bool,
        option(
            "--from-results",
            "Run nothing; make the table and the plots from the results in FOLDER.",
        ),
    ] = False,
    pictures: Annotated[bool, option("--pictures/--no-pictures", "Draw the plots.")] = True,
    as_json: Json = False,
) -> None:
    """Run a table of the paper.

    The table shows the published figures in brackets. Finished fits are stored in
    FOLDER/TABLE/results.jsonl, so that a stopped run continues. The table is written there as
    Markdown, and the plots as SVG. The recipes set the seeds, one for each split.

    Example: deepmf reproduce table1 --quick
    """
    from deepmf.experiments.recipe import make_quick, read_table, set_device
    from deepmf.experiments.run import Results, list_trials, run, run_trial

    recipes = read_table(table, only=only or ())
    if quick:
        recipes = [make_quick(recipe) for recipe in recipes]
    if device is not None:
        recipes = [set_device(recipe, device) for recipe in recipes]
    results = Results(out or Path("reproduced-quick" if quick else "reproduced"))
    trials = [trial for recipe in recipes for trial in list_trials(recipe, n_splits=splits)]
    if not from_results:
        with show_share(f"reproducing {table}") as show:
            for progress in run(run_trial, trials, results, jobs=jobs):
                show(progress.n_done, progress.n_trials)
    own_data = {recipe.name: recipe.data for recipe in read_table(table)}
    records = results.records(read_table(table))  # also of rows that were run before
    quick = quick or any(record["data"] != own_data[record["recipe"]] for record in records)
    if not records:
        raise FileAbsent(
            f"{results.folder / table} has no results of {table}; leave out --from-results to run it"
        )
    _publish(
        table, results.folder / table, records, pictures=pictures, quick=quick, as_json=as_json
    )


def _publish(
    table: str,
    folder: Path,
    records: list[dict[str, Any]],
    *,
    pictures: bool,
    quick: bool,
    as_json: bool,
) -> None:
    from deepmf.experiments.plots import draw
    from deepmf.experiments.recipe import read_layout
    from deepmf.experiments.tables import format_costs, format_markdown, list_lines, list_remarks
    from deepmf.files import write_atomically

    layout = read_layout(table)
    notes = [*([QUICK] if quick else []), *list_remarks(table, records)]
    text = f"# {layout.title}\n\n{format_markdown(table, records)}\n" + "".join(
        f"- {remark}\n" for remark in notes
    )
    text += f"\n{format_costs(records)}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "table.md", lambda path: path.write_text(text, encoding="utf-8"))
    pictures_drawn = draw(table, records, folder) if pictures else []
    if as_json:
        show_json({"table": table, "quick": quick, "folder": str(folder), "records": records})
        return
    header, *rows = list_lines(table, records)
    show_table(header, rows, title=QUICK if quick else layout.title)
    for remark in list_remarks(table, records):
        say(remark)
    say(
        f"{folder}: results.jsonl, table.md"
        + (f", {len(pictures_drawn)} plots" if pictures_drawn else "")
    )
