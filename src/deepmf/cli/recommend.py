"""`deepmf recommend`: the best columns for a row, known or new, and for many rows at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.feature_files import FeatureFiles, by_name
from deepmf.cli.inputs import (
    Reading,
    folded_in,
    hinting_at_extension,
    like_label,
    load_model,
    read_column_list,
    read_row_list,
)
from deepmf.cli.options import (
    Extend,
    FeatureValues,
    FrameJson,
    History,
    Json,
    ModelFile,
    RowId,
    SafeCsv,
    Without,
    takes_groups,
)
from deepmf.cli.output import STANDARD, check_frame_target, say, show_json, show_share, show_table, write_frames
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    import polars as pl

    from deepmf.models.base import Model
    from deepmf.models.ranking import Ranking


@takes_groups
def similar(
    model: ModelFile,
    column: Annotated[str | None, typer.Option("--column", metavar="ID", help="A column that the model knows.")] = None,
    row: RowId = None,
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many columns, or rows.")] = 10,
    extend: Extend = None,
    *,
    files: Annotated[FeatureFiles, Without("kinds")],
    as_json: Json = False,
) -> None:
    """Show the columns most similar to a column, or the rows most similar to a row, with the cosines of their latents.

    Example: deepmf similar model.safetensors --column Alien
    """
    if (row is None) == (column is None):
        raise BadSetting("give either --column ID or --row ID")
    fitted = load_model(model, extensions=extend or (), reading=Reading(), features=files)
    with hinting_at_extension():
        if column is not None:
            axis, label = "column", like_label(column, fitted.entries_.columns, axis="column")
            found = fitted.similar_columns(label, n)
        else:
            assert row is not None
            axis, label = "row", like_label(row, fitted.entries_.rows, axis="row")
            found = fitted.similar_rows(label, n)
    lines = list(zip(found.labels.tolist(), found.values.tolist(), strict=True))
    if as_json:
        show_json({axis: label, "similar": [{axis: other, "cosine": cosine} for other, cosine in lines]})
        return
    names = fitted.entries_.train.form.name_ids_beside(["cosine"])
    heading = names[0] if axis == "row" else names[1]
    show_table([heading, "cosine"], ((str(other), cosine) for other, cosine in lines))


@takes_groups
def recommend(
    model: ModelFile,
    row: RowId = None,
    history: History = None,
    features: FeatureValues = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            "--rows", metavar="FILE", help="Instead of --row: many rows, one per line; - for standard input. Needs -o."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Instead of --row: all rows that the model knows. Needs -o.")] = (
        False
    ),
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many columns.")] = 10,
    extend: Extend = None,
    *,
    files: Annotated[FeatureFiles, Without("kinds")],
    among: Annotated[
        Path | None,
        typer.Option(
            "--among", metavar="FILE", help="Choose from these columns alone, one per line; - for standard input."
        ),
    ] = None,
    exclude: Annotated[
        Path | None,
        typer.Option("--exclude", metavar="FILE", help="Leave these columns out, one per line; - for standard input."),
    ] = None,
    min_entries: Annotated[
        int, typer.Option("--min-entries", metavar="N", help="Leave out columns with fewer entries than this.")
    ] = 0,
    include_observed: Annotated[
        bool, typer.Option("--include-observed", help="Also columns that the row has an entry for.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write row, rank, column and prediction to a .csv, .tsv, .jsonl or .parquet; "
            "- for standard output (csv, or with --json JSON lines).",
        ),
    ] = None,
    safe_csv: SafeCsv = False,
    as_json: FrameJson = False,
) -> None:
    """Show the best columns of a row, with their predictions, without those it has entries for.

    With --rows or --all, those of many rows are written to a file, some rows at a time, so that memory stays bounded.

    Example: deepmf recommend model.safetensors --all -n 10 --min-entries 20 -o top.parquet
    """
    _check_asked(row, history, features, rows, every, output)
    known = None if features is None else by_name("--features", features)
    if safe_csv and output is None:
        raise BadSetting("--safe-csv is for a file: give -o FILE")
    if output is not None:
        inputs = [model, rows, among, exclude, *(extend or ()), *files.paths]
        check_frame_target(output, inputs=inputs, safe_csv=safe_csv, as_json=as_json)
    fitted = load_model(model, extensions=extend or (), reading=Reading(), features=files)
    with hinting_at_extension():
        choice = {
            "among": None if among is None else read_column_list(among, fitted),
            "exclude": None if exclude is None else read_column_list(exclude, fitted),
            "min_entries": min_entries,
            "include_observed": include_observed,
        }
        if output is None:
            _show(_best(fitted, row, history, known, n=n, choice=choice), fitted, row, as_json=as_json)
            return
        labels = [_label(fitted, row)] if row is not None else None if rows is None else read_row_list(rows, fitted)
        lines = _Lines(fitted, labels, n, choice)
    standard_format = ".jsonl" if as_json else ".csv"
    with show_share("recommending") as show:
        frames = lines.counted(show)
        write_frames(frames, lines.found.schema, output, standard_format=standard_format, safe_csv=safe_csv)
    _tell(lines, output, as_json=as_json)


def _check_asked(
    row: str | None, history: Path | None, features: str | None, rows: Path | None, every: bool, output: str | None
) -> None:
    """Refuse more than one kind of rows, none at all, and many rows without a file."""
    is_new = history is not None or features is not None
    given = [row is not None, is_new, rows is not None, every]
    if sum(given) != 1:
        raise BadSetting(
            "give one of --row ID, which the model knows, --history FILE or --features, for a new row, --rows FILE, "
            "for many rows, and --all, for all of them"
        )
    if output is None and (rows is not None or every):
        raise BadSetting(f"{'--all' if every else '--rows'} needs -o FILE, such as -o top.csv (- for standard output)")
    if output is not None and is_new:
        by = "--features" if history is None else "--history"
        raise BadSetting(f"-o is for rows that the model knows; a new row, by {by}, is shown (--json for machines)")


def _best(
    model: Model,
    row: str | None,
    history: Path | None,
    features: dict[str, str] | None,
    *,
    n: int,
    choice: dict[str, Any],
) -> Ranking:
    """Return the best columns of a known row, or of a new row with a history, or with features."""
    if row is not None:
        return model.recommend(_label(model, row), n=n, **choice)
    return folded_in(model, history, features).recommend(n, **choice)


def _label(model: Model, row: str | None) -> Any:
    assert row is not None
    return like_label(row, model.entries_.rows, axis="row")


def _show(best: Ranking, model: Model, row: str | None, *, as_json: bool) -> None:
    columns, predictions = best.labels.tolist(), best.values.tolist()
    if as_json:
        pairs = zip(columns, predictions, strict=True)
        shown = None if row is None else _label(model, row)
        show_json({"row": shown, "best": [{"column": c, "prediction": p} for c, p in pairs]})
        return
    _, heading = model.entries_.train.form.name_ids_beside(["prediction"])
    show_table([heading, "prediction"], ([str(c), p] for c, p in zip(columns, predictions, strict=True)))


class _Lines:
    """The lines of a file of recommendations, counted as they are made."""

    def __init__(self, model: Model, rows: Iterable[Any] | None, n: int, choice: dict[str, Any]) -> None:
        from deepmf.models.ranking import Recommendations

        self.found = Recommendations.of(model.entries_, model.predictor_, rows, n, **choice)
        self.n_rows, self.n_lines = int(self.found.rows.size), 0

    def counted(self, show: Callable[[int, int | None], None]) -> Iterator[pl.DataFrame]:
        for frame in self.found.frames():
            self.n_lines += frame.height
            show(self.n_lines, self.found.most_lines)
            yield frame


def _tell(lines: _Lines, target: str, *, as_json: bool) -> None:
    """Say what is in a file; nothing where it is standard output."""
    if target == STANDARD:
        return
    if as_json:
        show_json({"rows": lines.n_rows, "recommendations": lines.n_lines, "file": target})
    else:
        say(f"{lines.n_lines:,} recommendations for {lines.n_rows:,} row{'s' * (lines.n_rows != 1)} in {target}")
