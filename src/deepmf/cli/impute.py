"""`deepmf impute`: fill in the gaps of a table of numbers and text, and report how well each column
is predicted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deepmf.cli.inputs import InputOptions, locate_errors, name_file, open_input
from deepmf.cli.options import FrameFile, FrameJson, Seed, argument, option, with_option_groups
from deepmf.cli.output import (
    STANDARD,
    check_frame_target,
    say,
    show_json,
    show_share,
    show_table,
    write_frames,
)
from deepmf.errors import BadEntries, BadSetting, Hint, warn
from deepmf.files import Progress, polars

if TYPE_CHECKING:
    from deepmf.sklearn import DMFImputer

_NUMBER_OF_TABLE = ".imp"  # the column that tells the completed tables of --m apart, as in mice

_EXCLUDE_HINT = "--exclude-columns {} leaves it as it is"


@with_option_groups(reading=("separator", "decimal", "encoding"))
def impute(
    table: Annotated[
        Path,
        argument(
            "TABLE",
            "Table with gaps: csv, tsv, parquet, jsonl, xlsx, also compressed; - for standard input.",
        ),
    ],
    output: FrameFile = STANDARD,
    exclude_columns: Annotated[
        str | None,
        option("--exclude-columns NAME,NAME", "Columns to leave as they are, such as ids."),
    ] = None,
    missing_values: Annotated[
        str | None,
        option(
            "--missing-values TEXT,TEXT",
            "Further marks of missing cells, such as unknown,-99; empty cells, NA, null, ?, - and . always are.",
        ),
    ] = None,
    model: Annotated[
        str, option("--model NAME", "auto, gaussian, trees, als, dmf-o and others.")
    ] = "auto",
    levels: Annotated[
        bool, option("--levels", "Fill in values that the column already has, where values repeat.")
    ] = False,
    many: Annotated[
        int | None,
        option(
            "--m --many M",
            f"Draw M completed tables for multiple imputation, numbered in a column {_NUMBER_OF_TABLE}.",
            min=2,
        ),
    ] = None,
    page: Annotated[
        Path | None,
        option(
            "--page FILE.html",
            "Write a page on the gaps, the imputed values, and how sure each column is.",
        ),
    ] = None,
    seed: Seed = None,
    *,
    reading: InputOptions,
    as_json: FrameJson = False,
) -> None:
    """Fill in the gaps of a table of numbers and text.

    Observed cells and the types of columns stay as they are. Ids, dates, and texts that are nearly
    all different are not filled in. The summary has a line for each column: the number of imputed
    cells, and the score on cells that were hidden (1 is perfect, 0 is no better than the mean) with
    its standard error.

    Example: deepmf impute survey.csv -o completed.csv --m 20 --page survey.html
    """
    check_frame_target(output, inputs=[table])

    from deepmf.data.features import read_mixed_table
    from deepmf.sklearn import DMFImputer

    with open_input(table) as file:
        frame = read_mixed_table(
            file,
            separator=reading.field_separator,
            decimal=reading.decimal,
            encoding=reading.encoding,
            missing_values=missing_values.split(",") if missing_values else [],
        )
    if many and _NUMBER_OF_TABLE in frame.columns:
        raise BadEntries(
            f"{name_file(table)}: --m writes a column {_NUMBER_OF_TABLE!r}, and the table has one; rename it"
        )
    gappy = _GappyTable.of(frame, table, (exclude_columns or "").split(","))
    imputer = DMFImputer(
        model, answers="levels" if levels else "values", random_state=seed or 0, verbose=None
    )
    with locate_errors(table):
        imputer.fit(gappy.inputs)
    with show_share("completing") as show:
        frames: Iterable[polars.DataFrame] = [gappy.restore(imputer.transform(gappy.inputs))]
        schema = dict(frame.schema)
        if many:
            frames = _draw_many(gappy, imputer, many, seed or 0, show)
            schema = {_NUMBER_OF_TABLE: polars.Int64(), **schema}
        write_frames(frames, schema, output, as_json=as_json, decimal=reading.decimal)
    if page:
        from deepmf.cli.imputation_page import write_imputation

        (completed,) = imputer.impute_many(gappy.inputs, 1, seed=seed or 0)
        with_gaps = [name for name in gappy.completed if frame[name].null_count()]
        write_imputation(frame, gappy.restore(completed), with_gaps, imputer, page)
    if output != STANDARD:
        _report(gappy, imputer, output, many, as_json=as_json)
    if choice := _describe_choice(gappy):
        warn(choice)


@dataclass(frozen=True)
class _GappyTable:
    """A table, and the names of the columns that the imputer reads and fills in."""

    frame: polars.DataFrame
    completed: list[str]

    @classmethod
    def of(cls, frame: polars.DataFrame, path: Path, excluded: list[str]) -> _GappyTable:
        """Leave out the excluded columns, and columns without gaps that no imputer can learn from,
        such as ids."""
        from deepmf.errors import suggest_name

        completed, excluded = [], [name.strip() for name in excluded if name.strip()]
        for name in excluded:
            if name not in frame.columns:
                hint = suggest_name(name, frame.columns)
                raise BadSetting(f"--exclude-columns has {name!r}, which is no column; {hint}")
        for series in frame.get_columns():
            name, reason = series.name, _explain_unfit(series)
            if name in excluded or series.null_count() == series.len():
                continue
            if reason is None:
                completed.append(name)
            elif series.null_count() == 0 or series.dtype.is_temporal():
                say(
                    f"deepmf: {name_file(path)}: column {name!r} {reason} and stays as it is",
                    err=True,
                )
            else:
                raise BadEntries(
                    f"{name_file(path)}: column {name!r} {reason}, so its gaps cannot be filled in",
                    hint=Hint("leave the column out", _EXCLUDE_HINT.format(name)),
                )
        if not completed:
            raise BadEntries(f"{name_file(path)}: no column is left to fill in")
        return cls(frame, completed)

    @property
    def inputs(self) -> polars.DataFrame:
        """The columns that the imputer reads."""
        return self.frame.select(self.completed)

    def restore(self, completed: Any) -> polars.DataFrame:
        """Return the whole table with the gaps of these columns filled in, in the types that it
        has."""
        columns = []
        for name in self.completed:
            observed, filled = self.frame[name], completed[name]
            if observed.dtype.is_float():
                for digits in range(7):
                    if (observed.round(digits) == observed).all():
                        filled = observed.zip_with(observed.is_not_null(), filled.round(digits))
                        break
            columns.append(filled)
        return self.frame.with_columns(columns)


def _describe_choice(gappy: _GappyTable) -> str | None:
    """Return a sentence where rows fill in what they like of columns with the same few levels, such
    as ratings.

    The gaps of columns on scales of their own are no choice among alike.
    """
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.means import Means

    frame = gappy.inputs
    if not all(dtype.is_numeric() for dtype in frame.dtypes):
        return None
    frame = frame.sample(min(frame.height, 10_000), seed=0)
    values = [series.drop_nulls().unique() for series in frame.get_columns()]
    n_levels = len(set().union(*values))
    # columns on the same scale share up to 20 levels, of which most have half
    if n_levels > 20 or 2 * sum(map(len, values)) < n_levels * len(values):
        return None
    return Means().fit(ObservedMatrix.from_table(frame), progress=False).describe_choice()


def _explain_unfit(series: polars.Series) -> str | None:
    """Return why no imputer can learn from a column; None where it can."""

    from deepmf.matrix.scale import MOST_LEVELS

    if series.dtype.is_temporal() or series.dtype.is_nested():
        return f"holds {series.dtype}"
    n_distinct = series.drop_nulls().n_unique()
    is_text = series.dtype in (polars.String, polars.Categorical, polars.Enum)
    if is_text and n_distinct > MOST_LEVELS:
        return f"holds {n_distinct:,} different texts"
    is_id = series.name.strip().lower().rsplit("_", 1)[-1] in ("id", "ids", "index", "")
    if is_id and series.dtype.is_integer() and n_distinct == series.len():
        return "holds ids"
    return None


def _draw_many(
    gappy: _GappyTable, imputer: DMFImputer, many: int, seed: int, show: Progress
) -> Iterator[polars.DataFrame]:

    show(0, many)
    for number, completed in enumerate(imputer.impute_many(gappy.inputs, many, seed=seed), start=1):
        numbered = polars.lit(number, dtype=polars.Int64).alias(_NUMBER_OF_TABLE)
        yield gappy.restore(completed).select(numbered, polars.all())
        show(number, many)  # the frame is written by now


def _report(
    gappy: _GappyTable, imputer: DMFImputer, output: str, many: int | None, *, as_json: bool
) -> None:
    """Print the number of imputed cells of each column, the score of its predictions, and the
    model."""
    columns: dict[str, dict[str, Any]] = {
        name: {"imputed": 0, "score": None, "margin": None, "error": None}
        for name in gappy.frame.columns
    }
    for name in gappy.completed:
        columns[name]["imputed"] = gappy.frame[name].null_count()
    if score := imputer.score_:
        measures = score.columns, score.column_scores, score.column_margins, score.column_errors
        for name, *numbers in zip(*(array.tolist() for array in measures), strict=True):
            columns[name] |= zip(("score", "margin", "error"), numbers, strict=True)
    n_imputed = sum(column["imputed"] for column in columns.values())
    facts = {
        "imputed": n_imputed,
        "rows": gappy.frame.height,
        "columns": columns,
        "weights": imputer.weights_,
        "file": output,
    }
    if as_json:
        show_json(facts | ({"tables": many} if many else {}))
        return
    lines = [[name, *column.values()] for name, column in columns.items()]
    show_table(["column", "imputed", "score", "±", "typical error"], lines)
    weights = ", ".join(f"{name} {weight:.0%}" for name, weight in imputer.weights_.items())
    tables = f"{many} tables with " if many else ""
    say(f"{tables}{n_imputed:,} imputed values in {output} ({weights})")
