"""`deepmf recommend` and `deepmf similar`: the best columns for rows, and the nearest rows or columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli import options
from deepmf.cli.feature_files import FeatureFiles, NameFiles, parse_conditions, parse_named_values
from deepmf.cli.inputs import (
    InputOptions,
    convert_label,
    fold_in_row,
    hint_at_extension,
    parse_moment,
    read_column_list,
    read_row_list,
)
from deepmf.cli.model_file import load_model
from deepmf.cli.output import (
    STANDARD,
    check_frame_target,
    give_name,
    list_names,
    say,
    show_json,
    show_named_table,
    show_share,
    write_frames,
)
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    import polars as pl

    from deepmf.files import Progress
    from deepmf.models.base import Model
    from deepmf.recommend.ranking import Ranking
    from deepmf.recommend.recommendations import Recommendations

_MOST_FEATURES = 3  # of columns, in a table; JSON has all


@options.with_option_groups(reading=("encoding",))
def recommend(
    model: options.ModelFile,
    row: options.RowId = None,
    history: options.History = None,
    features: options.FeatureValues = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            "--rows", metavar="FILE", help="Rows, one per line, instead of --row; needs -o; - for standard input."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All rows that the model knows, instead of --row; needs -o.")] = (
        False
    ),
    n: Annotated[int, typer.Option("-n", metavar="N", help="Number of columns.")] = 10,
    extend: options.Extend = None,
    among: Annotated[
        Path | None,
        typer.Option(
            "--among", metavar="FILE", help="Recommend only these columns, one per line; - for standard input."
        ),
    ] = None,
    exclude: Annotated[
        Path | None,
        typer.Option("--exclude", metavar="FILE", help="Leave out these columns, one per line; - for standard input."),
    ] = None,
    min_entries: Annotated[
        int, typer.Option("--min-entries", metavar="N", help="Recommend only columns with at least N entries.")
    ] = 0,
    include_observed: Annotated[
        bool, typer.Option("--include-observed", help="Include columns that the row has an entry for.")
    ] = False,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help="Recommend only columns with such features: year>=1990, genres=Drama|Comedy, genres!=War; repeatable.",
        ),
    ] = None,
    rank_by: Annotated[
        str | None,
        typer.Option(
            "--rank-by",
            metavar="relevance|value",
            help="Rank by what the row is likely to take and like, or by the prediction; default: chosen at fit.",
        ),
    ] = None,
    relevant: Annotated[
        float | None,
        typer.Option(
            "--relevant",
            metavar="VALUE",
            help="Smallest value that counts as liked; default: the row's mean, rounded up.",
        ),
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(
            "--rerank", metavar="mmr", help="Pick different columns among the best, by maximal marginal relevance."
        ),
    ] = None,
    at: options.At = None,
    *,
    files: FeatureFiles,
    names: NameFiles,
    reading: InputOptions,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write: .csv, .tsv, .jsonl or .parquet; - for standard output. With --engine, a new folder.",
        ),
    ] = None,
    digits: options.Digits = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="ray", help="Recommend on the cores or machines of a Ray cluster; needs -o."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="auto|cpu|cuda", help="Rank with torch, on a GPU if set; needs -o."),
    ] = None,
    safe_csv: options.SafeCsv = False,
    as_json: options.FrameJson = False,
) -> None:
    """Recommend columns for a row or for many rows.

    These are the columns that the row is likely to take and to like, or with --rank-by value the columns with the
    highest predictions. Columns that the row has an entry for are left out. With --rows or --all, a file with a row, a
    rank, a column, a prediction and its probabilities per line is written in batches, so that memory stays bounded.

    Example: deepmf recommend model.safetensors --all -n 10 --min-entries 20 -o top.parquet
    """
    _check_rows(row, history, features, rows, every, output)
    known = None if features is None else parse_named_values("--features", features)
    changes = [*(extend or ()), *files.paths, *names.paths]
    if output is None:
        of_files = {"--safe-csv": safe_csv or None, "--digits": digits, "--device": device, "--engine": engine}
        for name in (name for name, given in of_files.items() if given is not None):
            raise BadSetting(f"{name} needs -o FILE")
    elif engine is None:
        inputs = [model, rows, among, exclude, *changes]
        check_frame_target(output, inputs=inputs, safe_csv=safe_csv, as_json=as_json)
    else:
        _check_engine(engine, row, at, output, changes, is_text=safe_csv or digits is not None)

    from deepmf.recommend.recommendations import Recommendations

    fitted = load_model(model, extensions=extend, features=files, names=names, reading=reading)
    with hint_at_extension():
        choice: dict[str, Any] = {
            "among": None if among is None else read_column_list(among, fitted, reading),
            "exclude": None if exclude is None else read_column_list(exclude, fitted, reading),
            "min_entries": min_entries,
            "include_observed": include_observed,
            "where": None if where is None else parse_conditions(where, fitted.entries_.column_features),
            "rerank": rerank,
        }
        order: dict[str, Any] = {"rank_by": rank_by, "relevant": relevant}
        order |= {} if at is None else {"at": parse_moment(at)}
        label = None if row is None else convert_label(row, fitted.entries_.rows)
        labels = [label] if row is not None else None if rows is None else read_row_list(rows, fitted, reading)

        if output is None and row is None:
            best = fold_in_row(fitted, history, known, reading).recommend(n, **choice, **order)
            _show_best(best, fitted, None, as_json=as_json)
        elif output is None:
            _show_best(fitted.recommend(label, n=n, **choice, **order), fitted, label, as_json=as_json)
        elif engine is None:
            found = Recommendations.of(fitted.entries_, fitted.make_ranker(**order), labels, n, **choice, device=device)
            _write_recommendations(found, output, as_json=as_json, safe_csv=safe_csv, digits=digits)
        else:
            _recommend_on_ray(
                model, fitted, labels, output, n=n, device=device, options=choice | order, as_json=as_json
            )


@options.with_option_groups(reading=("encoding",))
def similar(
    model: options.ModelFile,
    column: Annotated[str | None, typer.Option("--column", metavar="ID", help="Column that the model knows.")] = None,
    row: options.RowId = None,
    n: Annotated[int, typer.Option("-n", metavar="N", help="Number of columns or rows.")] = 10,
    min_entries: Annotated[
        int | None,
        typer.Option(
            "--min-entries", metavar="N", help="Show only columns with N entries or more; default: 5 at most."
        ),
    ] = None,
    extend: options.Extend = None,
    *,
    files: FeatureFiles,
    names: NameFiles,
    reading: InputOptions,
    as_json: options.Json = False,
) -> None:
    """Show the most similar columns or rows.

    Similarity is the cosine of the latent factors. Columns with hardly any entries are left out.

    Example: deepmf similar model.safetensors --column Alien
    """
    if (row is None) == (column is None):
        raise BadSetting("give either --column ID or --row ID")
    fitted = load_model(model, extensions=extend, features=files, names=names, reading=reading)
    with hint_at_extension():
        if column is not None:
            axis, label = "column", convert_label(column, fitted.entries_.columns)
            found = fitted.similar_columns(label, n, min_entries=min_entries)
        else:
            assert row is not None
            axis, label = "row", convert_label(row, fitted.entries_.rows)
            found = fitted.similar_rows(label, n)
    lines = list(zip(found.labels.tolist(), list_names(found), found.values.tolist(), strict=True))
    if as_json:
        own = fitted.column_names_ if axis == "column" else fitted.row_names_
        shown = [{axis: other, **give_name(axis, name), "cosine": cosine} for other, name, cosine in lines]
        show_json({axis: label, **give_name(axis, own.get(label)), "similar": shown})
        return
    ids = fitted.entries_.train.form.name_ids_beside(["name", "cosine"])
    show_named_table([ids[0] if axis == "row" else ids[1], "name", "cosine"], lines)


def _check_rows(
    row: str | None, history: Path | None, features: str | None, rows: Path | None, every: bool, output: str | None
) -> None:
    """Require exactly one of the ways to name rows, and a file for many rows."""
    is_new = history is not None or features is not None
    given = [row is not None, is_new, rows is not None, every]
    if sum(given) != 1:
        raise BadSetting(
            "give one of --row ID for a known row, --history FILE or --features for a new one, --rows FILE for many, "
            "or --all"
        )
    if output is None and (rows is not None or every):
        raise BadSetting(f"{'--all' if every else '--rows'} needs -o FILE, such as -o top.csv (- for standard output)")
    if output is not None and is_new:
        by = "--features" if history is None else "--history"
        raise BadSetting(
            f"-o is for known rows; the recommendations for a new row ({by}) are printed (use --json for machines)"
        )


def _check_engine(
    engine: str, row: str | None, at: str | None, output: str, changes: list[Path], *, is_text: bool
) -> None:
    """Refuse options that workers of an engine could not follow."""
    if at is not None:
        raise BadSetting("--engine recommends for the time of the latest entry; leave out --at")
    if engine != "ray":
        raise BadSetting(f"--engine must be ray; got {engine!r}")
    if row is not None or is_text:
        name = "--row" if row is not None else "--safe-csv and --digits"
        raise BadSetting(f"--engine is for many rows, in parquet files; leave out {name}")
    if changes:
        raise BadSetting(f"--engine reads the model file as it is; save a model with {changes[0]} first")
    if output == STANDARD or Path(output).suffix:
        raise BadSetting(f"with --engine, -o is a new folder of parquet files, such as -o top; got {output!r}")


def _recommend_on_ray(
    path: Path,
    model: Model,
    rows: Iterable[Any] | None,
    folder: str,
    *,
    n: int,
    device: str | None,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    from deepmf.batch import Scorer, score_on_ray

    found = model.entries_.rows
    wanted = found.array if rows is None else found[found.find_distinct(rows)]
    n_lines = score_on_ray(Scorer(path.absolute(), n=n, device=device, **options), wanted, folder)
    _show_counts(wanted.size, n_lines, folder, as_json=as_json)


def _show_best(best: Ranking, model: Model, row: Any, *, as_json: bool) -> None:
    """Print the best columns of a known row, or of a new row, which has no label."""
    numbers = {"prediction": best.values, "presence": best.presence, "liked": best.liked}
    known: dict[str, list[Any]] = {name: each.tolist() for name, each in numbers.items() if each is not None}
    features = _read_features(model, best)
    if as_json:
        if best.distribution is not None:
            levels = model.support_.tolist()
            known["distribution"] = [
                [{"level": level, "probability": chance} for level, chance in zip(levels, line, strict=True)]
                for line in best.distribution.tolist()
            ]
        shown = [
            {"column": column, **give_name("column", name), **dict(zip(known, rest, strict=True))}
            | ({"features": own} if own else {})
            for column, name, own, *rest in zip(
                best.labels.tolist(), list_names(best), features, *known.values(), strict=True
            )
        ]
        show_json({"row": row, **give_name("row", model.row_names_.get(row)), "best": shown})
        return
    if not model.entries_.train.has_values:
        del known["prediction"]  # of interactions it is the presence
    facts = list(dict.fromkeys(name for own in features for name in own))[:_MOST_FEATURES]
    cells = [[_format_feature(own.get(name)) for own in features] for name in facts]
    _, heading = model.entries_.train.form.name_ids_beside(["name", *known, *facts])
    lines = zip(best.labels.tolist(), list_names(best), *known.values(), *cells, strict=True)
    show_named_table([heading, "name", *known, *facts], lines)


def _read_features(model: Model, best: Ranking) -> list[dict[str, Any]]:
    """Return the column features of each recommended column, as the model encodes them."""
    known, columns = model.entries_.column_features, model.entries_.columns
    if known is None:
        return [{} for _ in best.labels]
    return [known.encoding.decode(known.take(columns.positions([label]))) for label in best.labels.tolist()]


def _format_feature(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(value) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else str(value)


def _write_recommendations(
    found: Recommendations, output: str, *, as_json: bool, safe_csv: bool, digits: int | None
) -> None:
    """Write the recommendations for many rows in batches; print their number, except on standard output."""
    n_lines = 0

    def count_lines(show: Progress) -> Iterator[pl.DataFrame]:
        nonlocal n_lines
        for frame in found.frames():
            n_lines += frame.height
            show(n_lines, found.most_lines)
            yield frame

    with show_share("recommending") as show:
        write_frames(count_lines(show), found.schema, output, as_json=as_json, safe_csv=safe_csv, digits=digits)
    if output != STANDARD:
        _show_counts(int(found.rows.size), n_lines, output, as_json=as_json)


def _show_counts(n_rows: int, n_lines: int, target: str, *, as_json: bool) -> None:
    if as_json:
        show_json({"rows": n_rows, "recommendations": n_lines, "file": target})
    else:
        say(f"{n_lines:,} recommendations for {n_rows:,} row{'s' * (n_rows != 1)} in {target}")
