"""`deepmf reproduce`: run a table of the paper from data to picture, with the published figures beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.options import Device, Json, table_names
from deepmf.cli.output import say, show_json, show_table
from deepmf.errors import FileAbsent

if TYPE_CHECKING:
    from collections.abc import Callable

    from deepmf.experiments.run import Progress

QUICK = "A QUICK RUN on generated data, to see that everything works: not the result."


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="table1, table2 or another folder of recipes.", autocompletion=table_names
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Where the results of all tables are kept; reproduced unless given."
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ROW", help="Only this row of the table, such as dmf; repeatable.")
    ] = None,
    splits: Annotated[int | None, typer.Option(metavar="N", help="The first N splits instead of all.")] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="How many fits run at once, on one GPU or on the cores.")] = 1,
    device: Device = None,
    quick: Annotated[bool, typer.Option("--quick", help="Minutes on two cores, offline, on generated data.")] = False,
    from_results: Annotated[
        bool,
        typer.Option(
            "--from-results", help="Run nothing: make table and pictures of what FOLDER holds, of any commit."
        ),
    ] = False,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Whether to draw the plots.")] = True,
    as_json: Json = False,
) -> None:
    """Run a table of the paper and show it, the published figures in brackets beside ours.

    Every finished fit is kept in FOLDER/TABLE/results.jsonl: a run that was stopped continues where it was. The table
    is written there as Markdown and CSV too, and pictures as SVG. There is no --seed: the seeds are the
    recipe's, one for each split, so that everyone runs the same splits.

    Example: deepmf reproduce table1 --only dmf --only i-autorec --splits 1
    """
    from deepmf.experiments.recipe import make_quick as quickly
    from deepmf.experiments.recipe import read_table, set_device
    from deepmf.experiments.run import Results, list_trials, run, run_trial

    recipes = read_table(table, only=only or ())
    if quick:
        recipes = [quickly(recipe) for recipe in recipes]
    if device is not None:
        recipes = [set_device(recipe, device) for recipe in recipes]
    results = Results(out or Path("reproduced-quick" if quick else "reproduced"))
    trials = [trial for recipe in recipes for trial in list_trials(recipe, n_splits=splits)]
    if not from_results:
        with _show_progress(table, len(trials)) as show:
            for progress in run(run_trial, trials, results, jobs=jobs):
                show(progress)
    own_data = {recipe.name: recipe.data for recipe in read_table(table)}
    records = results.records(read_table(table))  # all that are there, also of rows that were run before
    quick = quick or any(record["data"] != own_data[record["recipe"]] for record in records)
    if not records:
        raise FileAbsent(f"{results.folder / table} holds no results of {table}; without --from-results it is run")
    _publish(table, results.folder / table, records, pictures=pictures, quick=quick, as_json=as_json)


def _publish(
    table: str, folder: Path, records: list[dict[str, Any]], *, pictures: bool, quick: bool, as_json: bool
) -> None:
    """Write the table and its pictures beside the results, and show it."""
    from deepmf.experiments.plots import draw
    from deepmf.experiments.recipe import read_layout
    from deepmf.experiments.tables import format_costs, format_csv, format_markdown, list_lines, list_remarks
    from deepmf.files import write_atomically

    layout = read_layout(table)
    said = [*([QUICK] if quick else []), *list_remarks(table, records)]
    text = f"# {layout.title}\n\n{format_markdown(table, records)}\n" + "".join(f"- {remark}\n" for remark in said)
    text += f"\n{format_costs(records)}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "table.md", lambda path: path.write_text(text, encoding="utf-8"))
    write_atomically(folder / "table.csv", lambda path: path.write_text(format_csv(table, records), encoding="utf-8"))
    drawn = draw(table, records, folder) if pictures else []
    if as_json:
        show_json({"table": table, "quick": quick, "folder": str(folder), "records": records})
        return
    header, *rows = list_lines(table, records)
    show_table(header, rows, title=QUICK if quick else layout.title)
    for remark in list_remarks(table, records):
        say(remark)
    say(f"{folder}: results.jsonl, table.md, table.csv" + (f", {len(drawn)} pictures" if drawn else ""))


@contextmanager
def _show_progress(table: str, n_trials: int) -> Iterator[Callable[[Progress], None]]:
    """Yield what shows each finished fit: a bar with the time left on a terminal, nothing elsewhere."""
    from deepmf.training.progress import is_terminal

    if not is_terminal():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"reproducing {table}", total=n_trials, state="the first fits are running")

        def show(progress: Progress) -> None:
            first = progress.records[0]
            state = f"last: {first['recipe']}, split {first['seed']}; about {progress.seconds_left / 60:.0f} min left"
            bar.update(task, completed=progress.n_done, state=state)

        yield show
