"""`python -m deepmf.experiments`: tables where only torch, numpy, scipy and safetensors are
installed.

python -m deepmf.experiments run table1 --jobs 8 --only dmf i-autorec --out results
python -m deepmf.experiments show table1 --out results
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from deepmf.errors import UserError
from deepmf.experiments.recipe import read_table
from deepmf.experiments.run import Progress, Results, list_trials, run, run_trial
from deepmf.experiments.tables import format_costs, format_markdown, list_notes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, or 2 for a user error."""
    parser = argparse.ArgumentParser(
        prog="python -m deepmf.experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["run", "show"])
    parser.add_argument("table")
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        metavar="RECIPE",
        help="some rows of the table, such as dmf",
    )
    parser.add_argument("--splits", type=int, help="the first N splits instead of all")
    parser.add_argument("--jobs", type=int, default=1, help="how many trials run at once")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="where results are kept"
    )
    options = parser.parse_args(arguments)
    try:
        recipes, results = read_table(options.table, only=options.only), Results(options.out)
        if options.command == "run":
            trials = [
                trial
                for recipe in recipes
                for trial in list_trials(recipe, n_splits=options.splits)
            ]
            for progress in run(run_trial, trials, results, jobs=options.jobs):
                _say(progress)
        records = results.records(recipes)
        notes = "".join(f"- {note}\n" for note in list_notes(options.table, records))
        sys.stdout.write(
            f"{format_markdown(options.table, records)}\n{notes}\n{format_costs(records)}"
        )
    except UserError as error:
        sys.stderr.write(f"deepmf.experiments: {error}\n")
        return 2
    return 0


def _say(progress: Progress) -> None:
    first = progress.records[0]
    names = ("rmse", "ndcg", "next_ndcg")  # of values, of lists, of what comes next
    shown = ", ".join(
        f"{record['area']} {record[name]:.4f}"
        for record in progress.records
        for name in names
        if name in record
    )
    where = "" if first["new_share"] is None else f", {first['new_share']:.0%} new"
    sys.stderr.write(
        f"{progress.n_done}/{progress.n_trials} {first['recipe']}, seed {first['seed']}{where}: {shown} "
        f"({first['seconds']:.0f} s; about {progress.seconds_left / 60:.1f} min left)\n"
    )


if __name__ == "__main__":
    sys.exit(main())
