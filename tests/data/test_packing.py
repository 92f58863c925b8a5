"""Packing: a store holds what reading the same files at once gives, and stands there whole or not
at all."""

import datetime
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import deepmf
from deepmf.data import pack, packing, read_matrix
from deepmf.data.read import ReadOptions
from deepmf.datasets import generate
from deepmf.errors import BadEntries, BadSetting, CannotSave, DeepMFWarning
from deepmf.matrix.matrix import ObservedMatrix

# Labels are texts, and sorted, as those of a file are.
FILMS = ObservedMatrix.from_frame(generate(60, 40, density=0.3, seed=0).matrix.to_frame())


def shuffle(matrix: ObservedMatrix, seed: int = 0) -> pl.DataFrame:
    return matrix.to_frame().sample(fraction=1, shuffle=True, seed=seed)


def are_same(ours: ObservedMatrix, theirs: ObservedMatrix) -> bool:
    return (
        ours == theirs
        and ours.form == theirs.form
        and all(map(np.array_equal, ours.by_column, theirs.by_column))
        and ours.mean == pytest.approx(theirs.mean)
    )


def test_several_files_are_one_matrix(tmp_path: Path) -> None:
    frame = shuffle(FILMS)
    frame.head(300).write_parquet(tmp_path / "1.parquet")
    frame.slice(300, 200).write_csv(tmp_path / "2.csv")
    ObservedMatrix.from_frame(frame.slice(500)).write(tmp_path / "3.store")
    files = [tmp_path / name for name in ("1.parquet", "2.csv", "3.store")]
    assert are_same(pack(files, tmp_path / "all.store"), FILMS)


def test_ids_have_the_type_that_all_files_together_give_them(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("user,item,rating\n10,1,5\n9,2,3\n")
    (tmp_path / "2.csv").write_text("user,item,rating\nann,1,4\n9,3,3\n")
    numbers = pack(tmp_path / "1.csv", tmp_path / "1.store")
    assert numbers.row_labels.tolist() == [9, 10]
    both = pack([tmp_path / "1.csv", str(tmp_path / "2.csv")], tmp_path / "2.store")
    assert (list(both.rows), list(both.columns)) == (["10", "9", "ann"], [1, 2, 3])
    rows, columns, values = (part.tolist() for part in both.entries())
    assert (rows, columns) == (["10", "9", "9", "ann"], [1, 2, 3, 1])
    assert values == [5, 3, 3, 4]


DAYS = [datetime.date(2021, 1, 1), datetime.date(2020, 1, 1)]


@pytest.mark.parametrize(
    "parts, labels",
    [
        ([pl.Series([7, -1, 7]), pl.Series([10**15, 3], dtype=pl.UInt64)], [-1, 3, 7, 10**15]),
        ([pl.Series(["b", "Zoë"]), pl.Series(["a", "b"], dtype=pl.Categorical)], ["Zoë", "a", "b"]),
        ([pl.Series([9, 10]), pl.Series(["x", "9"])], ["10", "9", "x"]),
        ([pl.Series([0.5, -1.0]), pl.Series([0.25])], [-1.0, 0.25, 0.5]),
        ([pl.Series(DAYS), pl.Series(DAYS[1:])], DAYS[::-1]),
        ([pl.Series(DAYS), pl.Series([3])], "date .* int 3"),
        ([pl.Series(DAYS), pl.Series([0.5])], "float"),
    ],
)
def test_typed_ids_of_several_files(tmp_path: Path, parts: list[pl.Series], labels: Any) -> None:
    given = {}
    for number, ids in enumerate(parts):
        items = [f"{number} {at}" for at in range(ids.len())]
        given |= dict(zip(items, map(str, ids.to_list()), strict=True))
        pl.DataFrame({"user": ids, "item": items}).write_parquet(tmp_path / f"{number}.parquet")
    files = sorted(tmp_path.iterdir())
    if isinstance(labels, str):
        with pytest.raises(BadEntries, match=labels):
            pack(files, tmp_path / "all.store")
        return
    packed = pack(files, tmp_path / "all.store")
    assert packed.row_labels.tolist() == labels
    rows, columns, _ = packed.entries()
    assert dict(zip(columns.tolist(), map(str, rows.tolist()), strict=True)) == given


def test_options_are_those_of_reading(tmp_path: Path) -> None:
    def check(text: str, **options: Any) -> ObservedMatrix:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.csv"
        path.write_text(text)
        packed = pack(path, path.with_suffix(".store"), **options)
        assert are_same(packed, read_matrix(path, **options))
        return packed

    assert check("id,q1,q2\na,1,\nb,,3\n", wide=True).n_entries == 2
    with pytest.warns(DeepMFWarning, match="2 lines .*'NA'"):
        check("user,item,rating\na,x,1\na,y,NA\n\nb,y,2\n\n\n", missing="drop")
    commas = check("user;item;rating\na;x;1,5\nb;y;2\n", decimal=",")
    assert commas.values.tolist() == [1.5, 2]


def test_a_line_far_down_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    lines = [f"{number},x,{number % 5}" for number in range(777)]
    (tmp_path / "r.csv").write_text(
        "\n".join(["user,item,rating", *lines, "z,x,bad", *lines]) + "\n"
    )
    with pytest.raises(BadEntries, match="line 779"):
        pack(tmp_path / "r.csv", tmp_path / "r.store")
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


def test_nothing_is_packed_over_another(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user,item,rating\na,x,1\na,y,2\n")
    pack(tmp_path / "r.csv", tmp_path / "r.store")
    with pytest.raises(BadSetting, match="one"):
        pack([], tmp_path / "none.store")
    with pytest.raises(CannotSave, match="already"):
        pack(tmp_path / "r.csv", tmp_path / "r.store")
    with pytest.raises(CannotSave, match="folder"):
        pack(tmp_path / "r.csv", tmp_path / "none" / "r.store")


def test_progress_counts_the_entries(tmp_path: Path) -> None:
    for name in ("1.csv", "2.csv"):
        FILMS.write(tmp_path / name)
    steps: list[tuple[int, int | None]] = []
    packing.pack_files(
        sorted(tmp_path.iterdir()),
        tmp_path / "r.store",
        ReadOptions(duplicates="last"),
        progress=lambda *each: steps.append(each),
    )
    assert steps == [(FILMS.n_entries, None), (2 * FILMS.n_entries, None)]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    FILMS.write(tmp_path / "r.csv")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotSave, match="space"):
        pack(tmp_path / "r.csv", tmp_path / "r.store")
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


SLOW = """
import signal, sys
from deepmf.data import packing
from deepmf.storage import model_file
def slow(*_, **__):
    print("half", flush=True)
    signal.pause()
model_file.view_bytes = slow
packing.pack(sys.argv[1], sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_pack_leaves_no_store(tmp_path: Path) -> None:
    FILMS.write(tmp_path / "r.csv")
    command = [sys.executable, "-c", SLOW, tmp_path / "r.csv", tmp_path / "r.store"]
    environment = os.environ | {"PYTHONPATH": str(Path(deepmf.__file__).parents[1])}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "r.store").exists()
    assert are_same(pack(tmp_path / "r.csv", tmp_path / "r.store"), FILMS)
