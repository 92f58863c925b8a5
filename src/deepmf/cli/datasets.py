"""`deepmf datasets`: list the public data sets, download one, describe a file of entries."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.inputs import Reading
from deepmf.cli.options import FlagCommand, FlagGroup, Json, ScaleText, dataset_names, takes_groups
from deepmf.cli.output import STANDARD, say, show_json, show_share, show_table
from deepmf.cli.settings import parse_scale
from deepmf.errors import FileAbsent, UnreadableFile

if TYPE_CHECKING:
    from deepmf.data.datasets import Dataset
    from deepmf.matrix.matrix import ObservedMatrix

datasets = typer.Typer(cls=FlagGroup, invoke_without_command=True)


@datasets.callback()
def options(context: typer.Context) -> None:
    """Public data sets by name, and what a file of entries holds.

    Example: deepmf datasets fetch ml-1m
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@datasets.command("list", cls=FlagCommand)
def list_all(as_json: Json = False) -> None:
    """List the public data sets, and where the downloaded ones are stored.

    They are looked for and kept in the folder that the environment variable DEEPMF_DATA names.

    Example: deepmf datasets list
    """
    from deepmf.data.datasets import DATASETS, folder

    found = [_entry(dataset) for dataset in DATASETS.values()]
    if as_json:
        show_json({"folder": str(folder()), "datasets": found})
        return
    show_table(
        ["name", "what", "MB", "here"],
        [[each["name"], each["title"], _megabytes(each["bytes"]), each["file"] or ""] for each in found],
    )
    say(f"kept in {folder()} (the environment variable DEEPMF_DATA names another folder)")


@datasets.command(cls=FlagCommand)
def fetch(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name from `deepmf datasets list`.", autocompletion=dataset_names)
    ],
    archive: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="The archive, if you have it already.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Download a data set unless it is there already, verify it, and unpack the file with its entries.

    Its licence is shown; a download that breaks off continues when the command is run again.

    Example: deepmf datasets fetch ml-1m
    """
    from deepmf.data.datasets import fetch, find, info

    dataset = info(name)
    was_here = find(name) is not None
    with show_share(f"fetching {name}") as progress:
        if archive is not None and not was_here:
            _copy(archive, dataset)
        file = fetch(name, progress=progress)
    if as_json:
        show_json(_entry(dataset) | {"file": str(file), "was_here": was_here})
        return
    say(f"{dataset.title}\n{dataset.licence}")
    say(f"{'was here already' if was_here else 'is here now'}: {file}")
    twice = "" if dataset.ratings.duplicates == "error" else f" --duplicates {dataset.ratings.duplicates}"
    say(f"next: deepmf fit {shlex.quote(str(file))} -o model.safetensors{twice}")


@datasets.command(cls=FlagCommand)
@takes_groups
def describe(
    ratings: Annotated[
        Path,
        typer.Argument(
            metavar="RATINGS",
            help="Entries, read as by fit, or a name from `deepmf datasets list`; - for standard input.",
        ),
    ],
    scale: ScaleText = None,
    *,
    reading: Reading,
    as_json: Json = False,
) -> None:
    """Show what a file of entries, or a data set, holds: its size, scale, density, and how values are distributed.

    Example: deepmf datasets describe ratings.csv
    """
    if _is_name(ratings):
        description = _named(str(ratings)).describe()
    else:
        if not (ratings.exists() or ratings.suffix or str(ratings) == STANDARD):
            raise FileAbsent(f"there is no file {ratings}, and no data set of that name (deepmf datasets list)")
        description = reading.matrix(ratings, scale=parse_scale(scale)).describe()
    if as_json:
        show_json(description.to_dict())
    else:
        say(str(description))


def _is_name(ratings: Path) -> bool:
    """Say whether a data set is meant: a file of that name goes first."""
    from deepmf.data.datasets import DATASETS

    return str(ratings) in DATASETS and not ratings.exists()


def _named(name: str) -> ObservedMatrix:
    """Return a data set that is here; describing one downloads nothing."""
    from deepmf.data.datasets import find, load

    if find(name) is None:
        raise FileAbsent(f"the data set {name} is not here yet; deepmf datasets fetch {name} downloads it")
    return load(name)


def _entry(dataset: Dataset) -> dict[str, Any]:
    from deepmf.data.datasets import find

    found = find(dataset.name)
    return {
        "name": dataset.name,
        "title": dataset.title,
        "entries": dataset.n_entries,
        "bytes": dataset.n_bytes,
        "licence": dataset.licence,
        "address": dataset.address,
        "file": None if found is None else str(found),
    }


def _copy(archive: Path, dataset: Dataset) -> None:
    """Unpack the user's own archive, and keep a copy of it as if it had been downloaded."""
    from deepmf.data.datasets import extract, folder
    from deepmf.files import write_atomically

    if archive.is_dir():
        raise UnreadableFile(
            f"{archive} is a directory; --from takes the archive {dataset.archive} (files that are unpacked already "
            f"are used where they lie: DEEPMF_DATA={archive})"
        )
    if not archive.exists():
        raise FileAbsent(f"there is no file {archive}")
    member = PurePosixPath(dataset.ratings.member)
    extract(archive, str(member), folder() / dataset.name / member.name)
    write_atomically(folder() / dataset.archive, lambda temporary: shutil.copyfile(archive, temporary))


def _megabytes(n_bytes: int | None) -> int | None:
    return None if n_bytes is None else max(1, round(n_bytes / 1e6))
