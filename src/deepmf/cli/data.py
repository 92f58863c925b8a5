"""`deepmf pack`, `deepmf split` and `deepmf datasets`: files of entries as one store, as parts for
training, validation and test, and downloaded."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.inputs import InputOptions, open_input, parse_moment, report_reading
from deepmf.cli.options import (
    VALIDATION_SHARE,
    Areas,
    Json,
    NewColumns,
    NewRows,
    Ratings,
    ScaleText,
    Seed,
    argument,
    list_words,
    option,
    with_option_groups,
)
from deepmf.cli.output import check_distinct, say, show_json, show_result, show_share, show_table
from deepmf.cli.settings import parse_scale
from deepmf.errors import BadSetting, check_choice
from deepmf.files import check_parts, write_folder_atomically

if TYPE_CHECKING:
    from deepmf.data.datasets import Dataset
    from deepmf.matrix.matrix import ObservedMatrix


_FORMATS = ("csv", "tsv", "parquet", "store")
_WAYS = ("entries", "rows", "time", "last")
_PARTS = ("train", "validation", "test", "extension", "given")  # of all ways to split


@with_option_groups()
def split(
    ratings: Ratings,
    output: Annotated[
        Path, option("--output -o FOLDER", "Folder to write; it replaces an earlier split there.")
    ],
    test_share: Annotated[float, option("--test-share SHARE", "Share of the test entries.")] = 0.2,
    validation_share: Annotated[
        float, option("--validation-share SHARE", "Share of the validation entries.")
    ] = VALIDATION_SHARE,
    by: Annotated[
        str,
        option(
            "--by entries|rows|time|last",
            "Split entries at random, hold out whole rows, the latest entries, or the latest of each row.",
        ),
    ] = "entries",
    train_before: Annotated[
        str | None, option("--train-before DATE", "End of the training entries, with --by time.")
    ] = None,
    validation_before: Annotated[
        str | None,
        option("--validation-before DATE", "End of the validation entries, with --by time."),
    ] = None,
    n: Annotated[int, option("-n N", "Test entries of each row, with --by last.")] = 1,
    given_share: Annotated[
        float,
        option(
            "--given-share SHARE",
            "Share of the entries of a held-out row that is given, with --by rows.",
        ),
    ] = 0.8,
    areas: Areas = False,
    new_rows: NewRows = 0.2,
    new_columns: NewColumns = 0.2,
    file_format: Annotated[
        str | None,
        option(
            f"--format {'|'.join(_FORMATS)}", "Format of the files; default: as RATINGS, or csv."
        ),
    ] = None,
    seed: Seed = None,
    *,
    reading: InputOptions,
    as_json: Json = False,
) -> None:
    """Split entries into train, validation and test files.

    The split is random, in exact shares. With --by time, the latest entries are the test and those
    before them the validation, by shares or by dates. With --by last, the latest entries of each
    row are the test.

    With --by rows, --test-share is the share of rows that are held out: given has the entries that
    describe them (for --extend), test has the others, and validation has entries of the other rows.

    With --areas, some rows and columns are new: train has none of their entries, extension has
    those that describe them (for --extend), and test has entries of all four areas.

    Example: deepmf split ratings.csv -o parts
    """
    ending = _choose_format(ratings, file_format)
    check_choice("--by", by, _WAYS)
    if by != "entries" and areas:
        raise BadSetting(f"--by {by} and --areas are two ways to split; give one of them")
    if by != "time" and (train_before or validation_before):
        raise BadSetting(f"--train-before and --validation-before need --by time; got --by {by}")
    for file in _PARTS:
        check_distinct(output / f"{file}{ratings.suffix}", [ratings])
    check_parts(output, is_part=_is_part)

    from deepmf.data.splits import split_areas, split_entries, split_last, split_rows, split_time
    from deepmf.evaluation.comparison import join_tests

    matrix = reading.read_matrix(ratings)
    shares = {
        "train": round(1.0 - validation_share - test_share, 12),
        "validation": validation_share,
        "test": test_share,
    }
    parts: dict[str, ObservedMatrix]
    if areas:
        areas_split = split_areas(
            matrix, new_rows=new_rows, new_columns=new_columns, **shares, seed=seed or 0
        )
        test = join_tests(list(areas_split.test.values())).with_form(matrix.form)
        parts = {
            "train": areas_split.train,
            "validation": areas_split.validation,
            "test": test,
            "extension": areas_split.extension,
        }
    elif by == "rows":
        held_out = {"new_rows": test_share, "given": given_share, "validation": validation_share}
        parts = vars(split_rows(matrix, **held_out, seed=seed or 0))
    elif by == "time":
        dates = {
            "train_before": parse_moment(train_before),
            "validation_before": parse_moment(validation_before),
        }
        parts = vars(split_time(matrix, **dates, validation=validation_share, test=test_share))
    elif by == "last":
        parts = vars(split_last(matrix, n=n, validation=int(validation_share > 0)))
    else:
        parts = vars(split_entries(matrix, **shares, seed=seed or 0))
    files = {name: output / f"{name}.{ending}" for name in parts}

    def write(folder: Path) -> None:
        for name, part in parts.items():
            part.write(folder / files[name].name)

    write_folder_atomically(output, write, is_part=_is_part)
    facts: dict[str, dict[str, str | int]] = {
        name: {
            "file": str(files[name]),
            "entries": part.n_entries,
            "rows": int((part.row_counts > 0).sum()),
            "columns": int((part.column_counts > 0).sum()),
        }
        for name, part in parts.items()
    }
    if as_json:
        show_json({"seed": seed or 0, "files": facts})
        return
    show_table(
        ["file", "entries", "rows", "columns"],
        [[*file_facts.values()] for file_facts in facts.values()],
    )
    words: list[str] = []
    if ending != "store":
        words = list_words(_adapt_options(reading, matrix))
    _show_next_steps(parts, files, words)


def _show_next_steps(
    parts: dict[str, ObservedMatrix], files: dict[str, Path], read_as: list[str]
) -> None:
    fit = ["fit", files["train"]]
    if parts["validation"].n_entries:
        fit += ["--validation", files["validation"]]
    fit += ["-o", "model.safetensors", *read_as]
    say(f"next: deepmf {shlex.join(map(str, fit))}")
    evaluate = ["evaluate", "model.safetensors", files["test"]]
    for name in files.keys() & {"extension", "given"}:
        evaluate += ["--extend", files[name]]
    if "given" in files:
        evaluate.append("--ranking")
    if parts["test"].n_entries:
        say(f"then: deepmf {shlex.join(map(str, [*evaluate, *read_as]))}")


def _adapt_options(reading: InputOptions, matrix: ObservedMatrix) -> InputOptions:
    """Return the options that the parts need, whose fields have the names of the matrix."""
    form = matrix.form
    if form.wide:
        return InputOptions(wide=True, row=reading.row and form.row)
    from deepmf.matrix.table_form import COUNT

    row, column, value = form.names
    time, weight = form.name_extras()
    options = InputOptions(time=reading.time and time)
    if matrix.weights is not None:
        options = replace(options, weight=weight)
    if reading.row or reading.column or reading.value:
        options = replace(options, row=row, column=column)
        if matrix.has_values:
            options = replace(options, value=value)
    if not matrix.has_values and value != COUNT:
        options = replace(options, count=value)
    return options


def _choose_format(ratings: Path, file_format: str | None) -> str:
    if file_format:
        check_choice("--format", file_format, _FORMATS)
        return file_format
    from deepmf.storage.model_file import is_own_file

    ending = "store" if is_own_file(ratings) else ratings.suffix.lower().removeprefix(".")
    return ending if ending in _FORMATS else "csv"


def _is_part(file: Path) -> bool:
    """Whether a file may belong to an earlier split; a store is never replaced."""
    ending = file.suffix.removeprefix(".")
    return file.is_file() and file.stem in _PARTS and ending in _FORMATS and ending != "store"


@with_option_groups()
def pack(
    ratings: Annotated[
        list[Path],
        argument(
            "RATINGS...",
            "Files of entries that form one matrix: csv, tsv, parquet, jsonl, MovieLens .dat, .npz or stores, "
            "also .gz, .bz2, .xz, .zip; - for csv on standard input.",
        ),
    ],
    output: Annotated[Path, option("--output -o STORE", "Store to write: a new file.")],
    scale: ScaleText = None,
    *,
    reading: InputOptions,
    as_json: Json = False,
) -> None:
    """Pack files of entries into a store on disk.

    A store is a file that every command reads memory-mapped. Packing needs about 50 bytes of memory
    for each entry.

    Example: deepmf pack ratings.csv -o ratings.store
    """
    from deepmf.data.packing import pack_files
    from deepmf.data.read import read_matrix

    with ExitStack() as stack:
        files = [stack.enter_context(open_input(file)) for file in ratings]
        progress = stack.enter_context(show_share("packing"))
        packed = pack_files(
            files, output, reading.for_reader(parse_scale(scale)), progress=progress
        )
    for file, notes in zip(ratings, packed, strict=True):
        report_reading(file, notes, wide=reading.wide)
    matrix = read_matrix(output)
    n_rows, n_columns = matrix.shape
    n_bytes = output.stat().st_size
    facts = {
        "store": str(output),
        "entries": matrix.n_entries,
        "rows": n_rows,
        "columns": n_columns,
        "bytes": n_bytes,
        "dropped": sum(notes.n_dropped for notes in packed),
    }
    text = (
        f"{output}: {matrix.n_entries:,} entries in {n_rows:,} rows x {n_columns:,} columns, "
        f"{n_bytes / 1e6:,.1f} MB\n"
        f"next: deepmf fit {shlex.quote(str(output))} -o model.safetensors"
    )
    show_result(facts, text, as_json=as_json)


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

    facts = [_describe_dataset(dataset) for dataset in DATASETS.values()]
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
    facts = _describe_dataset(dataset) | {"file": str(file), "was_here": was_here}
    show_result(facts, text, as_json=as_json)


def _describe_dataset(dataset: Dataset) -> dict[str, Any]:
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
