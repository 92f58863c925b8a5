"""`deepmf datasets`: list public data sets, download one, describe entries."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli import options
from deepmf.cli.inputs import InputOptions
from deepmf.cli.options import argument
from deepmf.cli.output import STANDARD, say, show_json, show_share, show_table
from deepmf.cli.settings import parse_scale
from deepmf.errors import FileAbsent

if TYPE_CHECKING:
    from deepmf.data.datasets import Dataset

datasets = typer.Typer(invoke_without_command=True)


@datasets.callback()
def show_help(context: typer.Context) -> None:
    """List and download public data sets, and describe entries.

    Example: deepmf datasets fetch ml-1m
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@datasets.command("list")
def list_all(as_json: options.Json = False) -> None:
    """List the public data sets and where they are stored.

    They are stored in the folder in the environment variable DEEPMF_DATA.

    Example: deepmf datasets list
    """
    from deepmf.data.datasets import DATASETS, folder

    found = [_dataset_to_json(dataset) for dataset in DATASETS.values()]
    if as_json:
        show_json({"folder": str(folder()), "datasets": found})
        return
    lines = [
        [
            each["name"],
            each["title"],
            each["bytes"] and max(1, round(each["bytes"] / 1e6)),
            each["file"] or "",
        ]
        for each in found
    ]
    show_table(["name", "data set", "MB", "file"], lines)
    say(f"stored in {folder()} (set the environment variable DEEPMF_DATA to use another folder)")


@datasets.command()
def fetch(
    name: Annotated[str, argument("NAME", "Data set, as deepmf datasets list names it.")],
    as_json: options.Json = False,
) -> None:
    """Download a data set, verify it, and unpack its entries.

    A data set that is stored already, as its archive or unpacked, is not downloaded again.

    Example: deepmf datasets fetch ml-1m
    """
    from deepmf.data.datasets import fetch, find, info

    dataset = info(name)
    was_here = find(name) is not None
    with show_share(f"fetching {name}") as progress:
        file = fetch(name, progress=progress)
    if as_json:
        show_json(_dataset_to_json(dataset) | {"file": str(file), "was_here": was_here})
        return
    say(f"{dataset.title}\n{dataset.licence}")
    say(f"{'already stored in' if was_here else 'stored in'} {file}")
    twice = (
        ""
        if dataset.ratings.duplicates == "error"
        else f" --duplicates {dataset.ratings.duplicates}"
    )
    say(f"next: deepmf fit {shlex.quote(str(file))} -o model.safetensors{twice}")


@datasets.command()
@options.with_option_groups()
def describe(
    ratings: Annotated[
        Path,
        argument(
            "RATINGS",
            "File of entries, read as by fit, or name of a data set; - for standard input.",
        ),
    ],
    scale: options.ScaleText = None,
    *,
    reading: InputOptions,
    as_json: options.Json = False,
) -> None:
    """Describe a file of entries or a data set.

    The description has the size, the scale, the density and the distribution of the values.

    Example: deepmf datasets describe ratings.csv
    """
    from deepmf.data.datasets import DATASETS, find, load

    name = str(ratings)
    if name in DATASETS and not ratings.exists():  # a file of that name goes first
        if find(name) is None:  # describing downloads nothing
            raise FileAbsent(
                f"the data set {name} is not stored yet; download it with deepmf datasets fetch {name}"
            )
        description = load(name).describe()
    else:
        if not (ratings.exists() or ratings.suffix or name == STANDARD):
            raise FileAbsent(
                f"there is no file {ratings}, and no data set of that name (see deepmf datasets list)"
            )
        description = reading.read_matrix(ratings, scale=parse_scale(scale)).describe()
    if as_json:
        show_json(description.to_dict())
    else:
        say(str(description))


def _dataset_to_json(dataset: Dataset) -> dict[str, Any]:
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
