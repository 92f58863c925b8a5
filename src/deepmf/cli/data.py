"""`deepmf pack`, `deepmf split` and `deepmf datasets`: files of entries as one store, as parts for
training, validation and test, and downloaded."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
    offer,
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


@dataclass(frozen=True)
class SplitOptions:
    """The options that say which entries become the test, and which the validation."""

    test_share: float = offer("--test-share SHARE", "Share of the test entries.", 0.2)
    validation_share: float = offer(
        "--validation-share SHARE", "Share of the validation entries.", VALIDATION_SHARE
    )
    by: str = offer(
        "--by entries|rows|time|last",
        "Split entries at random, hold out whole rows, the latest entries, or the latest of each row.",
        "entries",
    )
    train_before: str | None = offer(
        "--train-before DATE", "End of the training entries, with --by time."
    )
    validation_before: str | None = offer(
        "--validation-before DATE", "End of the validation entries, with --by time."
    )
    n: int = offer("-n N", "Test entries of each row, with --by last.", 1)
    given_share: float = offer(
        "--given-share SHARE",
        "Share of the entries of a held-out row that is given, with --by rows.",
        0.8,
    )
    areas: Areas = False
    new_rows: NewRows = 0.2
    new_columns: NewColumns = 0.2

    def check(self) -> None:
        """Refuse options that contradict each other."""
        check_choice("--by", self.by, _WAYS)
        if self.by != "entries" and self.areas:
            raise BadSetting(f"--by {self.by} and --areas are two ways to split; give one of them")
        if self.by != "time" and (self.train_before or self.validation_before):
            raise BadSetting(
                f"--train-before and --validation-before need --by time; got --by {self.by}"
            )

    def split(self, matrix: ObservedMatrix, seed: int) -> dict[str, ObservedMatrix]:
        """Return the parts of a matrix by their names."""
        from deepmf.data.splits import split_entries, split_last, split_rows, split_time

        if self.areas:
            return self._split_areas(matrix, seed)
        test, validation = self.test_share, self.validation_share
        if self.by == "rows":
            by_rows = {"new_rows": test, "given": self.given_share, "validation": validation}
            return vars(split_rows(matrix, **by_rows, seed=seed))
        if self.by == "time":
            dates = {
                "train_before": parse_moment(self.train_before),
                "validation_before": parse_moment(self.validation_before),
            }
            return vars(split_time(matrix, **dates, validation=validation, test=test))
        if self.by == "last":
            return vars(split_last(matrix, n=self.n, validation=int(validation > 0)))
        return vars(split_entries(matrix, **self._list_shares(), seed=seed))

    def _split_areas(self, matrix: ObservedMatrix, seed: int) -> dict[str, ObservedMatrix]:
        from deepmf.data.splits import split_areas
        from deepmf.evaluation.comparison import join_tests

        new = {"new_rows": self.new_rows, "new_columns": self.new_columns}
        parts = vars(split_areas(matrix, **new, **self._list_shares(), seed=seed))
        test = join_tests(list(parts["test"].values())).with_form(matrix.form)
        return {name: parts[name] for name in ("train", "validation")} | {
            "test": test,
            "extension": parts["extension"],
        }

    def _list_shares(self) -> dict[str, float]:
        train = round(1.0 - self.validation_share - self.test_share, 12)
        return {"train": train, "validation": self.validation_share, "test": self.test_share}


@with_option_groups()
def split(
    ratings: Ratings,
    output: Annotated[
        Path, option("--output -o FOLDER", "Folder to write; it replaces an earlier split there.")
    ],
    *,
    options: SplitOptions,
    file_format: Annotated[
        str | None,
        option(
            f"--format {'|'.join(_FORMATS)}", "Format of the files; default: as RATINGS, or csv."
        ),
    ] = None,
    seed: Seed = None,
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
    options.check()
    for name in _PARTS:
        check_distinct(output / f"{name}{ratings.suffix}", [ratings])
    check_parts(output, is_part=_is_part)
    matrix = reading.read_matrix(ratings)
    parts = options.split(matrix, seed or 0)
    files = {name: output / f"{name}.{ending}" for name in parts}

    def write(folder: Path) -> None:
        for name, part in parts.items():
            part.write(folder / files[name].name)

    write_folder_atomically(output, write, is_part=_is_part)
    facts = {name: _describe_part(part, files[name]) for name, part in parts.items()}
    if as_json:
        show_json({"seed": seed or 0, "files": facts})
        return
    heads = ["file", "entries", "rows", "columns"]
    show_table(heads, [[*part_facts.values()] for part_facts in facts.values()])
    words: list[str] = []
    if ending != "store":
        words = list_words(_adapt_options(reading, matrix))
    _show_next_steps(parts, files, words)


def _describe_part(part: ObservedMatrix, file: Path) -> dict[str, str | int]:
    return {
        "file": str(file),
        "entries": part.n_entries,
        "rows": int((part.row_counts > 0).sum()),
        "columns": int((part.column_counts > 0).sum()),
    }


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
