"""A file of frames: every format holds what the frames hold, written whole or not at all."""

from collections.abc import Iterator
from pathlib import Path

import polars
import pytest

from deepmf.errors import BadSetting, CannotSave
from deepmf.storage.frame_file import label_type, write_frame_file

SCHEMA = {"row": polars.Int64, "value": polars.Float64}
PARTS = [polars.DataFrame({"row": [n, n], "value": [n / 2, 1.0]}, schema=SCHEMA) for n in range(3)]
READERS = {
    "csv": polars.read_csv,
    "tsv": lambda path: polars.read_csv(path, separator="\t"),
    "jsonl": lambda path: polars.read_ndjson(path, schema=SCHEMA),
    "parquet": polars.read_parquet,
    "pq": polars.read_parquet,
    "PARQUET": polars.read_parquet,
}


@pytest.mark.parametrize("ending", READERS)
def test_frames_become_one_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"f.{ending}"
    write_frame_file(iter(PARTS), SCHEMA, path)
    assert READERS[ending](path).equals(polars.concat(PARTS))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_fails_leaves_the_old_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"f.{ending}"
    path.write_text("the old one")

    def broken() -> Iterator[polars.DataFrame]:
        yield PARTS[0]
        raise BadSetting("no more")

    with pytest.raises((BadSetting, CannotSave), match="no more"):
        write_frame_file(broken(), SCHEMA, path)
    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]


def test_an_ending_that_says_no_format(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="must end in .csv, .tsv, .jsonl, .parquet; got '.*f.xlsx'"):
        write_frame_file(iter(PARTS), SCHEMA, tmp_path / "f.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_types_of_labels() -> None:
    assert label_type(PARTS[0]["row"].to_numpy()) == polars.Int64
    assert label_type(polars.Series(["a", "b"]).to_numpy()) == polars.String


def test_texts_of_digits_and_tabs_can_be_told_when_they_are_read(tmp_path: Path) -> None:
    frames = [
        polars.DataFrame({"user": ["1", "2"], "stars": [1.5, 2]}),
        polars.DataFrame({"user": ["x"], "stars": [3.0]}),
    ]
    write_frame_file(frames, frames[0].schema, tmp_path / "f.csv")
    assert (tmp_path / "f.csv").read_text() == 'user,stars\n"1",1.5\n"2",2.0\n"x",3.0\n'
    tabs = polars.DataFrame({"user": ["a\tb"], "stars": [1.5]})
    write_frame_file([tabs], tabs.schema, tmp_path / "f.tsv")
    assert (tmp_path / "f.tsv").read_text() == "user\tstars\na\\tb\t1.5\n"
