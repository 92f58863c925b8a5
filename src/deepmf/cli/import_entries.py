"""`deepmf import`: send files of entries to a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli import options
from deepmf.cli.inputs import InputOptions, name_file, open_input, report_reading
from deepmf.cli.options import argument, option
from deepmf.cli.output import say, show_json, show_share

if TYPE_CHECKING:
    from deepmf.data.read import FileEntries

_MOST_SHOWN = 10  # refused entries that are shown


@options.with_option_groups(
    reading=(
        "row",
        "column",
        "value",
        "time",
        "weight",
        "separator",
        "missing",
        "decimal",
        "encoding",
    )
)
def import_entries(
    ratings: Annotated[
        Path,
        argument(
            "RATINGS",
            "Entries: csv, tsv, parquet, jsonl or MovieLens .dat, also compressed; - for csv on standard input.",
        ),
    ],
    url: Annotated[str, option("--url URL", "Address of the service: http://127.0.0.1:8000.")],
    api_key: Annotated[
        str | None, option("--api-key KEY", "API key with the role write.", envvar="DEEPMF_API_KEY")
    ] = None,
    *,
    reading: InputOptions,
    batch_size: Annotated[
        int, option("--batch N", "Entries in one request.", min=1, max=50_000)
        # each row and column is computed once a request, however many entries of it there are
    ] = 50_000,
    as_json: options.Json = False,
) -> None:
    """Send entries to a service.

    The service writes them without training. Known entries are replaced, and of repeated pairs the
    last stays. If the service refuses some entries, it writes the others, and the exit status is 2.
    Sending a file again changes nothing.

    Example: deepmf import ratings.csv --url http://127.0.0.1:8000
    """
    from deepmf.client import Client
    from deepmf.data.read import read_lines

    counts = {"entries": 0, "changed": 0, "refused": 0}
    with (
        open_input(ratings) as file,
        Client(url, api_key=api_key, timeout=120.0) as client,
        show_share("sending") as progress,
    ):
        entries = read_lines(file, reading.for_reader(None))
        for start in range(0, entries.numbers.size, batch_size):
            written = client.write_entries(_list_entries(entries, slice(start, start + batch_size)))
            for refused in written.refused[: max(0, _MOST_SHOWN - counts["refused"])]:
                say(
                    f"deepmf: {entries.locate(start + refused.line - 1)}: {refused.message}",
                    err=True,
                )
            counts["entries"] += written.n_lines
            counts["changed"] += written.n_changed
            counts["refused"] += written.n_refused
            progress(counts["entries"], entries.numbers.size)
    report_reading(ratings, entries.notes, wide=False)
    if as_json:
        show_json({**counts, "version": written.version.model_dump()})
    else:
        same = counts["entries"] - counts["changed"] - counts["refused"]
        say(
            f"{name_file(ratings)}: {counts['entries']:,} entries sent, {counts['changed']:,} written, "
            f"{same:,} unchanged, {counts['refused']:,} refused"
        )
    if counts["refused"]:
        raise typer.Exit(2)


def _list_entries(entries: FileEntries, part: slice) -> list[tuple[Any, Any, Any]]:
    """Return rows, columns, and values or fields of entries with times or weights; an absent date
    stays out."""
    from deepmf.matrix.extras import NO_TIME

    values, extras = entries.numbers[part].tolist(), entries.extras.take(part)
    if not extras.are_absent:
        fields: dict[str, list[Any]] = {"value": values}
        if extras.times is not None:
            fields["time"] = [None if time == NO_TIME else time for time in extras.times.tolist()]
        if extras.weights is not None:
            fields["weight"] = extras.weights.tolist()
        values = [
            dict(zip(fields, line, strict=True)) for line in zip(*fields.values(), strict=True)
        ]
    ids = (
        axis.labels.array[axis.positions[part]].tolist() for axis in (entries.rows, entries.columns)
    )
    return list(zip(*ids, values, strict=True))
