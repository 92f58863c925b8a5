"""`deepmf split`: a file of entries as files to train on, to validate and to test by, or as areas."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepmf.cli.inputs import Reading, local_file, tell_reading
from deepmf.cli.options import AreasFlag, Json, NewColumns, NewRows, Ratings, ScaleText, Seed, takes_groups
from deepmf.cli.output import STANDARD, check_distinct, say, show_json, show_share, show_table
from deepmf.cli.settings import parse_scale
from deepmf.errors import BadSetting
from deepmf.files import check_parts, write_parts

if TYPE_CHECKING:
    from deepmf.matrix.frames import TableForm
    from deepmf.matrix.matrix import ObservedMatrix


@takes_groups
def pack(
    ratings: Annotated[
        list[Path],
        typer.Argument(
            metavar="RATINGS...",
            help="Entries: csv, tsv, parquet, jsonl, MovieLens .dat, .npz, stores; also .gz, .zst; - for csv from "
            "standard input. All files together are one matrix.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="STORE", help="The store to write: a folder that is not there yet."),
    ],
    scale: ScaleText = None,
    *,
    reading: Reading,
    as_json: Json = False,
) -> None:
    """Pack entries of any number into a store: a folder that every command takes in the place of a file of entries.

    It is built in memory that does not grow with the entries, and read in memory of what is touched.

    Example: deepmf pack ratings/*.parquet -o ratings.store && deepmf fit ratings.store -o model.safetensors
    """
    from deepmf.data.packing import pack_files
    from deepmf.data.read import read_matrix

    if str(output) == STANDARD:
        raise BadSetting("a store is a folder and cannot be written to standard output; -o takes its name")
    with ExitStack() as stack:
        files = [stack.enter_context(local_file(file)) for file in ratings]
        progress = stack.enter_context(show_share("packing"))
        packed = pack_files(files, output, reading.options(parse_scale(scale)), progress=progress)
    for file, read in zip(ratings, packed, strict=True):
        tell_reading(file, read.guess, read.n_dropped, wide=reading.wide)
    matrix = read_matrix(output)
    n_bytes = sum(part.stat().st_size for part in output.iterdir())
    if as_json:
        shown = {"store": str(output), "entries": matrix.n_entries, "rows": matrix.shape[0]}
        n_dropped = sum(read.n_dropped for read in packed)
        show_json(shown | {"columns": matrix.shape[1], "bytes": n_bytes, "dropped": n_dropped})
        return
    say(
        f"{output}: {matrix.n_entries:,} entries in {matrix.shape[0]:,} rows x {matrix.shape[1]:,} columns, "
        f"{n_bytes / 1e6:,.1f} MB"
    )
    say(f"next: deepmf fit {shlex.quote(str(output))} -o model.safetensors")


_FORMATS = ("csv", "tsv", "parquet", "npz", "store")


@takes_groups
def split(
    ratings: Ratings,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="The folder to write; an earlier split there is replaced whole."
        ),
    ],
    test_share: Annotated[
        float, typer.Option("--test-share", metavar="SHARE", help="The share of the entries to test by.")
    ] = 0.2,
    validation_share: Annotated[
        float,
        typer.Option(
            "--validation-share", metavar="SHARE", help="The share that chooses the best epoch; training has the rest."
        ),
    ] = 0.05,
    areas: AreasFlag = False,
    new_rows: NewRows = 0.2,
    new_columns: NewColumns = 0.2,
    file_format: Annotated[
        str | None,
        typer.Option("--format", metavar="|".join(_FORMATS), help="That of RATINGS unless given, otherwise csv."),
    ] = None,
    seed: Seed = None,
    *,
    reading: Reading,
    as_json: Json = False,
) -> None:
    """Split entries at random, in exact shares, into train, validation and test files.

    With --areas some rows and columns are new: training has none of their entries, extension holds those that describe
    them (for --extend), test the entries of all four areas, and test_I to test_IV those of each.

    Example: deepmf split ratings.csv -o parts && deepmf fit parts/train.csv --validation parts/validation.csv -o m
    """
    ending = _ending(ratings, file_format)
    if not (validation_share >= 0 and test_share >= 0 and validation_share + test_share < 1):
        raise BadSetting(
            "--validation-share and --test-share must be shares that leave some for training; "
            f"got {validation_share:g} and {test_share:g}"
        )
    if str(output) == STANDARD:
        raise BadSetting("a split is several files; -o takes the name of a folder")
    files = {name: output / f"{name}.{ending}" for name in _names(areas=areas)}
    for file in _names(areas=True):
        check_distinct(output / f"{file}{ratings.suffix}", [ratings])
    check_parts(output, is_part=_is_part)
    matrix = reading.matrix(ratings)
    parts = _parts(
        matrix,
        validation=validation_share,
        test=test_share,
        new=(new_rows, new_columns) if areas else None,
        seed=seed or 0,
    )

    def write(folder: Path) -> None:
        for name, part in parts.items():
            part.write(folder / files[name].name)

    write_parts(output, write, is_part=_is_part)
    if as_json:
        shown = {
            name: {
                "file": str(files[name]),
                "entries": part.n_entries,
                "rows": _n_rows(part),
                "columns": _n_columns(part),
            }
            for name, part in parts.items()
        }
        show_json({"seed": seed or 0, "files": shown})
        return
    lines = [[str(files[name]), part.n_entries, _n_rows(part), _n_columns(part)] for name, part in parts.items()]
    show_table(["file", "entries", "rows", "columns"], lines)
    read_as = [] if ending in ("npz", "store") else _reading_options(matrix.form, reading)
    validated: list[str | Path] = ["--validation", files["validation"]] if parts["validation"].n_entries else []
    extended: list[str | Path] = ["--extend", files["extension"]] if areas else []
    say(f"next: deepmf {_command('fit', files['train'], *validated, '-o', 'model.safetensors', *read_as)}")
    if parts["test"].n_entries:
        say(f"then: deepmf {_command('evaluate', 'model.safetensors', files['test'], *extended, *read_as)}")


def _reading_options(form: TableForm, reading: Reading) -> list[str]:
    """Return the options by which the files of a split are read as the whole was."""
    if form.wide:
        return ["--wide"] + ([] if reading.row is None else ["--row", form.row])
    if reading.row is None and reading.column is None and reading.value is None:
        return []
    row, column, value = form.names
    return ["--row", row, "--column", column, "--value", value]


def _command(*words: str | Path) -> str:
    return shlex.join(map(str, words))


def _names(*, areas: bool) -> list[str]:
    from deepmf.matrix.matrix import AREAS

    return ["train", "validation", "test"] + (["extension", *(f"test_{area}" for area in AREAS)] if areas else [])


def _parts(
    matrix: ObservedMatrix, *, validation: float, test: float, new: tuple[float, float] | None, seed: int
) -> dict[str, ObservedMatrix]:
    from deepmf.data.splits import split_areas, split_entries
    from deepmf.matrix.matrix import AREAS

    train = round(1.0 - validation - test, 12)
    if new is None:
        found = split_entries(matrix, train=train, validation=validation, test=test, seed=seed)
        return {"train": found.train, "validation": found.validation, "test": found.test}
    new_rows, new_columns = new
    by_area = split_areas(
        matrix, new_rows=new_rows, new_columns=new_columns, train=train, validation=validation, test=test, seed=seed
    )
    parts = {"train": by_area.train, "validation": by_area.validation, "test": _joined(matrix, by_area.test)}
    return parts | {"extension": by_area.extension} | {f"test_{area}": by_area.test[area] for area in AREAS}


def _joined(matrix: ObservedMatrix, parts: dict[str, ObservedMatrix]) -> ObservedMatrix:
    """Return the entries of all areas, which have the rows and columns of the whole matrix, as one matrix."""
    import numpy as np

    n_columns = matrix.shape[1]
    wanted = np.concatenate(
        [part.entry_rows.astype(np.int64) * n_columns + part.by_row.columns for part in parts.values()]
    )
    return matrix.take_entries(np.isin(matrix.entry_rows.astype(np.int64) * n_columns + matrix.by_row.columns, wanted))


def _ending(ratings: Path, file_format: str | None) -> str:
    if file_format is None:
        own = "store" if ratings.is_dir() else ratings.suffix.lower().removeprefix(".")
        return own if own in _FORMATS else "csv"
    if file_format not in _FORMATS:
        raise BadSetting(f"--format must be {', '.join(_FORMATS)}; got {file_format!r}")
    return file_format


def _is_part(file: Path) -> bool:
    """Say whether a file may be of an earlier split; a store is never replaced."""
    ending = file.suffix.removeprefix(".")
    return file.is_file() and file.stem in _names(areas=True) and ending in _FORMATS and ending != "store"


def _n_rows(part: ObservedMatrix) -> int:
    return int((part.row_counts > 0).sum())


def _n_columns(part: ObservedMatrix) -> int:
    return int((part.column_counts > 0).sum())
