"""`deepmf datasets`: list public data sets, and download one."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.options import Json, argument
from deepmf.cli.output import say, show_json, show_result, show_share, show_table

if TYPE_CHECKING:
    from deepmf.data.datasets import Dataset

datasets = typer.Typer(invoke_without_command=True)


@datasets.callback()
def show_help(context: typer.Context) -> None:
    """List and download public data sets.

    Example: deepmf datasets fetch ml-1m
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@datasets.command("list")
def list_all(as_json: Json = False) -> None:
    """List the public data sets and where they are stored.

    They are stored in the folder in the environment variable DEEPMF_DATA.

    Example: deepmf datasets list
    """
    from deepmf.data.datasets import DATASETS, folder

    facts = [_dataset_to_json(dataset) for dataset in DATASETS.values()]
    if as_json:
        show_json({"folder": str(folder()), "datasets": facts})
        return
    lines = []
    for fact in facts:
        megabytes = fact["bytes"] and max(1, round(fact["bytes"] / 1e6))
        lines.append([fact["name"], fact["title"], megabytes, fact["file"] or ""])
    show_table(["name", "data set", "MB", "file"], lines)
    say(f"stored in {folder()} (set the environment variable DEEPMF_DATA to use another folder)")


@datasets.command()
def fetch(
    name: Annotated[str, argument("NAME", "Data set, as deepmf datasets list names it.")],
    as_json: Json = False,
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
    words = ["deepmf", "fit", str(file), "-o", "model.safetensors"]
    if dataset.ratings.duplicates != "error":
        words += ["--duplicates", dataset.ratings.duplicates]
    text = (
        f"{dataset.title}\n{dataset.licence}\n"
        f"{'already stored in' if was_here else 'stored in'} {file}\nnext: {shlex.join(words)}"
    )
    facts = _dataset_to_json(dataset) | {"file": str(file), "was_here": was_here}
    show_result(facts, text, as_json=as_json)


def _dataset_to_json(dataset: Dataset) -> dict[str, Any]:
    from deepmf.data.datasets import find

    file = find(dataset.name)
    return {
        "name": dataset.name,
        "title": dataset.title,
        "entries": dataset.n_entries,
        "bytes": dataset.n_bytes,
        "licence": dataset.licence,
        "address": dataset.address,
        "file": None if file is None else str(file),
    }
