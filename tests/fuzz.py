"""Damaged files of every kind, opened by one process for each kind: refused in a sentence of ours,
or usable.

    python -m tests.fuzz --variants 1000            all kinds
    python -m tests.fuzz --kinds store,npz --variants 50 --first 0

A variant is a kind and a number: the same number gives the same bytes. What is found is printed
with both, and the exit status is 1. A process that dies, waits for more than a minute or takes more
than a gibibyte is a finding too.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tests.forks import FORKS

from deepmf.errors import DeepMFError

Dice = np.random.Generator
_SECONDS = 60
_MOST_BYTES = 1 << 30  # that one file may take beside what the process has


class Kind(NamedTuple):
    """A kind of file: `make` whole ones in a folder, `change` one of them into a target, `use` what
    is there."""

    make: Callable[[Path], Any]
    change: Callable[[Any, Path, Dice], None]
    use: Callable[[Any, Path], None]


def damaged(content: bytes, dice: Dice) -> bytes:
    """Return bytes with bits flipped, cut off, cut out, repeated, or overwritten."""
    at, length = int(dice.integers(len(content) + 1)), int(dice.integers(1, 64))
    match dice.integers(6):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + content[at + length :]
        case 2:
            return content[: at + length] + content[at:]
        case 3:
            return content[:at] + dice.bytes(length) + content[at + length :]
        case _:
            changed = bytearray(content)
            for _ in range(int(dice.integers(1, 5)) if changed else 0):
                changed[dice.integers(len(changed))] ^= 1 << int(dice.integers(8))
            return bytes(changed)


# Texts that parsers do not expect.
ODD = b'" , - nan 1e999 { } = 1979-13-32 true null -0 1e-320 #'.split()
ODD += [b"\t", b"\n", b"\r", b"\0", b"\xff", b" ", "é".encode()]
ODD += [b"9" * 400, b"9" * 5000, b"[" * 5000]
CELLS = [*b"XFD1048576 A1:XFD1048576 A0 ZZZ9999999 -1 99999999999 e d s 1e999".split(), b""]


def disturbed(content: bytes, dice: Dice) -> bytes:
    """Return a text with an odd text inside it, or in place of one of its words."""
    words = list(re.finditer(rb"[\w.]+", content))
    at = int(dice.integers(len(content) + 1))
    start, end = words[dice.integers(len(words))].span() if words and dice.integers(2) else (at, at)
    return content[:start] + ODD[dice.integers(len(ODD))] + content[end:]


def disturbed_xml(content: bytes, dice: Dice) -> bytes:
    """Return XML with another attribute, or with other bytes."""
    places = [found.span(1) for found in re.finditer(rb'"([^"<>]*)"', content)]
    if not places or dice.integers(4) == 0:
        return damaged(content, dice)
    start, end = places[dice.integers(len(places))]
    return content[:start] + CELLS[dice.integers(len(CELLS))] + content[end:]


def change_member(archive: Path, change: Callable[[bytes, Dice], bytes], dice: Dice) -> None:
    """Change the content of one member of an archive, which stays whole."""
    with zipfile.ZipFile(archive) as old:
        members = {each: old.read(each) for each in old.namelist()}
    name = pick(dice, members)
    members[name] = change(members[name], dice)
    with zipfile.ZipFile(archive, "w") as new:
        for each, data in members.items():
            new.writestr(each, data)


def pick(dice: Dice, items: Any) -> Any:
    """Return one of some items."""
    found = sorted(items)
    return found[dice.integers(len(found))]


# --- models and checkpoints


def make_models(folder: Path) -> Any:
    from tests.models.lies import NAMES, stored

    return {name: (stored(name, folder), (folder / name).read_bytes()) for name in NAMES}


def change_model(models: Any, target: Path, dice: Dice) -> None:
    from tests.models.lies import changed

    from deepmf.storage.model_file import write_file

    file, content = models[pick(dice, models)]
    if dice.integers(3) == 0:
        target.write_bytes(damaged(content, dice))
        return
    fields, tensors = changed(file, dice)
    write_file(target, kind="model", content=fields, tensors=tensors)


def use_model(_: Any, target: Path) -> None:
    from tests.models.lies import ask_everything

    from deepmf.models.loading import load

    ask_everything(load(target), target.parent)


def make_mapped(folder: Path) -> Any:
    from tests.models.lies import NAMES, fitted

    for name in NAMES:
        fitted(name).save(folder / f"{name}.model")
    return [folder / f"{name}.model" for name in NAMES]


def change_mapped(files: Any, target: Path, dice: Dice) -> None:
    from tests.models.lies import changed

    from deepmf.storage.model_file import map_file, write_file

    file, target = pick(dice, files), target.with_suffix(".model")
    content, start = file.read_bytes(), 8 + int.from_bytes(file.read_bytes()[:8], "little")
    which = dice.integers(4)
    if which == 0:
        target.write_bytes(damaged(content, dice))
    elif which == 1:  # nothing notices other values: mapping a file compares no checksums of them
        target.write_bytes(content[:start] + flipped_bytes(content[start:], dice))
    else:
        stored = map_file(file)
        fields, tensors = changed(stored, dice)
        write_file(target, kind=stored.kind, content=fields, tensors=tensors)


def flipped_bytes(content: bytes, dice: Dice) -> bytes:
    """Return bytes of the same length with some changed."""
    changed = np.frombuffer(content, dtype=np.uint8).copy()
    if changed.size:
        changed[dice.integers(changed.size, size=dice.integers(1, 9))] = dice.integers(256)
    return changed.tobytes()


def use_mapped(_: Any, target: Path) -> None:
    from tests.models.lies import one_more, questions

    from deepmf.models.loading import load, verify

    target = target.with_suffix(".model")
    with np.errstate(all="ignore"):
        model = load(target)
        for ask in questions(model):
            refused(ask)
        refused(lambda: [ask() for ask in questions(model.extend(one_more(model)))])
        refused(lambda: model.save(target.parent / "again"))
        refused(lambda: verify(target))


def refused(do: Callable[[], Any]) -> None:
    """Do something that may be refused."""
    try:
        do()
    except DeepMFError:
        return


def make_checkpoints(folder: Path) -> Any:
    from tests.models.lies import NAMES, interrupted

    names = [name for name in NAMES if name != "means"]
    made = {}
    for name in names:
        (folder / name).mkdir()
        file, fit = interrupted(name, folder / name)
        made[name] = file, fit, (folder / name / "run.checkpoint").read_bytes()
    return made


def change_checkpoint(made: Any, target: Path, dice: Dice) -> None:
    from tests.models.lies import changed

    from deepmf.storage.model_file import write_file

    name = pick(dice, made)
    target.with_suffix(".name").write_text(name)
    file, _, content = made[name]
    if dice.integers(3) == 0:
        target.write_bytes(damaged(content, dice))
        return
    fields, tensors = changed(file, dice)
    write_file(target, kind="checkpoint", content=fields, tensors=tensors)


def resume(made: Any, target: Path) -> None:
    made[target.with_suffix(".name").read_text()][1](target)


# --- entries


def some_matrix(seed: int = 0) -> Any:
    from deepmf.datasets import generate

    return generate(20, 15, density=0.4, seed=seed).matrix


def learn(target: Path) -> None:
    """Read a matrix and let models compute with all of it."""
    from deepmf.data import read_matrix
    from deepmf.models.als import ALS
    from deepmf.models.means import Means

    matrix = read_matrix(target)
    if sum(matrix.shape) > 1 << 16:
        return
    matrix.describe()
    pairs = matrix.entries()[:2]
    means, als = Means(presence=None), ALS(epochs=1, latent_size=2, presence=None)
    refused(lambda: means.fit(matrix).predict(*pairs))
    refused(lambda: als.fit(matrix).predict(*pairs))


def make_stores(folder: Path) -> Any:
    from deepmf.matrix.matrix import ObservedMatrix

    matrix = some_matrix()
    matrix.write(folder / "texts.store")
    _, columns, values = matrix.entries()
    numbers = values + np.random.default_rng(0).random(values.size)
    ObservedMatrix.from_entries(matrix.entry_rows * 3, columns, numbers).write(
        folder / "ints.store"
    )
    return list(folder.glob("*.store"))


def use_store(_: Any, target: Path) -> None:
    from deepmf.matrix.stored import verify_store

    target = target.with_suffix(".model")
    learn(target)
    verify_store(target)


def make_npz(folder: Path) -> Any:
    matrix = some_matrix()
    import scipy.sparse

    for name in ("csr", "csc", "coo", "bsr", "dia"):
        scipy.sparse.save_npz(folder / f"{name}.npz", matrix.to_sparse().asformat(name))
    return list(folder.glob("*.npz"))


def change_npz(files: Any, target: Path, dice: Dice) -> None:
    from tests.models.lies import changed_tensor

    content, target = pick(dice, files).read_bytes(), target.with_suffix(".npz")
    if dice.integers(4) == 0:
        target.write_bytes(damaged(content, dice))
        return
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    name = pick(dice, arrays)
    array = arrays[name].copy()
    is_number = array.dtype.kind in "iuf"
    match dice.integers(4):
        case 0 if is_number and array.size:
            other = np.array(pick(dice, [-1, -9, 0, 1, 2**20, 2**31 - 1, 10**6]))
            array.reshape(-1)[dice.integers(array.size)] = other.astype(array.dtype)
            arrays[name] = array
        case 1:
            del arrays[name]
        case _:
            arrays[name] = changed_tensor(array, dice) if is_number else np.atleast_1d(array)[:0]
    np.savez_compressed(target, **arrays)
    # one array with bytes of its header or content changed, in an archive that is whole
    if dice.integers(4) == 0:
        change_member(target, damaged, dice)


def make_texts(folder: Path) -> Any:
    matrix = some_matrix()
    for ending in ("csv", "tsv", "parquet"):
        matrix.write(folder / f"m.{ending}")
    (folder / "m.csv.gz").write_bytes(gzip.compress((folder / "m.csv").read_bytes()))
    return list(folder.iterdir())


def make_json_lines(folder: Path) -> Any:
    for name, matrix in (("texts", some_matrix()), ("dates", with_dates(some_matrix(1)))):
        matrix.to_frame().write_ndjson(folder / f"{name}.jsonl")
    return list(folder.iterdir())


def with_dates(matrix: Any) -> Any:
    from deepmf.matrix.matrix import ObservedMatrix

    return ObservedMatrix.from_entries(
        *matrix.entries(), times=86_400 * (1 + np.arange(matrix.n_entries))
    )


def write_excel(frame: Any, path: Path) -> None:
    """Write a frame as a sheet, and again as a table on a sheet with merged and linked cells."""
    from openpyxl import Workbook
    from openpyxl.worksheet.table import Table

    book = Workbook()
    for line in (frame.columns, *frame.rows()):
        book.active.append(line)
    book.save(path)
    book.active.add_table(Table(displayName="t", ref=book.active.dimensions))
    book.active.merge_cells("H2:I3")
    book.active["J2"].hyperlink = "#A1"
    book.save(path.with_stem(f"{path.stem}-table"))


def make_excel(folder: Path) -> Any:
    write_excel(some_matrix().to_frame().head(40), folder / "m.xlsx")
    return list(folder.iterdir())


def make_features(folder: Path) -> Any:
    import polars

    rows = some_matrix().row_labels.tolist()
    kinds: dict[str, Any] = {"kind": ["a", "b"], "tags": ["x|y", "z", ""], "age": [1, 2.5, 70]}
    kinds |= {"since": ["2001-12-31", "2024-02-29"]}
    kinds |= {"plot": [f"a long text of number {k}" for k in range(len(rows))]}
    repeated = {name: np.resize(each, len(rows)).tolist() for name, each in kinds.items()}
    frame = polars.DataFrame({"row": rows} | repeated)
    frame.write_csv(folder / "f.csv")
    frame.write_ndjson(folder / "f.jsonl")
    frame.write_parquet(folder / "f.parquet")
    write_excel(frame, folder / "f.xlsx")
    return list(folder.iterdir())


def change_file(files: Any, target: Path, dice: Dice) -> None:
    """Change one of some files; the target gets its ending."""
    file = pick(dice, files)
    target, content = target.with_name(f"{target.name}{''.join(file.suffixes)}"), file.read_bytes()
    if file.suffix == ".xlsx" and dice.integers(4):
        target.write_bytes(content)
        change_member(target, disturbed_xml, dice)
    else:
        is_text = file.suffix in (".csv", ".tsv", ".jsonl", ".keys", ".toml")
        target.write_bytes((disturbed if is_text and dice.integers(2) else damaged)(content, dice))


def find_file(target: Path) -> Path:
    """Return the file with the name of the target and some ending."""
    return next(target.parent.glob(f"{target.name}.*"))


def use_features(_: Any, target: Path) -> None:
    from deepmf.data import read_features
    from deepmf.models.means import Means

    features, matrix = read_features(find_file(target)), some_matrix()
    model = Means(presence=None)
    refused(lambda: model.fit(matrix, row_features=features).predict(*matrix.entries()[:2]))


# --- the service


def make_keys(folder: Path) -> Any:
    from deepmf.serve.auth import add_key

    for name, role in (("ann", "read"), ("bob", "admin")):
        add_key(folder / "k.keys", name=name, role=role)
    return [folder / "k.keys"]


def find_key(_: Any, target: Path) -> None:
    from deepmf.serve.auth import read_keys

    read_keys(find_file(target)).find("x")


CONFIGURATIONS = {
    "dmf": "hidden_sizes = [16, 8]\nlatent_size = 4\ndropout = 0.1\nepochs = 2\ndevice = 'cpu'\n",
    "als": "[settings]\nlatent_size = 3\nepochs = 2\npenalty = 1.5\npatience = 4\nseed = 7\n",
}


def make_configurations(folder: Path) -> Any:
    for name, text in CONFIGURATIONS.items():
        (folder / f"{name}.{name}.toml").write_text(text)
    return list(folder.iterdir())


def use_configuration(_: Any, target: Path) -> None:
    from deepmf.files import read_toml
    from deepmf.models.registry import model_class

    path = find_file(target)
    model_class(path.suffixes[-2][1:])(**read_toml(path))


def make_database(folder: Path) -> Any:
    from deepmf.models.als import ALS
    from deepmf.serve.changes import Entry
    from deepmf.serve.database import open_database

    model = ALS(epochs=1, latent_size=2).fit(some_matrix())
    database = open_database(str(folder / "entries.sqlite"))
    columns = model.column_labels_.tolist()
    entries = {("ann", column): Entry(float(model.scale_.low)) for column in columns[:4]}
    contents: Any = {("row", "ann"): {"age": 1}, ("skips", "ann"): frozenset(columns[5:7])}
    with database.begin_write() as transaction:
        transaction.write_changes(entries, contents=contents)
    database.close()
    return model, folder / "entries.sqlite"


def change_database(made: Any, target: Path, dice: Dice) -> None:
    content = made[1].read_bytes()
    if dice.integers(3) == 0:
        target.write_bytes(damaged(content, dice))
        return
    target.write_bytes(content)
    with closing(sqlite3.connect(target)) as connection, connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table'"
        ).fetchall()
        table = pick(dice, tables)[0]
        names = [line[1] for line in connection.execute(f"PRAGMA table_info({table})")]
        odd: list[Any] = [None, -1, 0, 2**62, 2**63 - 1, 4_000_000_000, 1e308, -1.5]
        odd += ["x", "", b"", b"ix", b"s\xff", b"{", b"[]", b"[" * 5000]
        with suppress(sqlite3.Error):  # a value that the table refuses
            connection.execute(
                f"UPDATE {table} SET {pick(dice, names)} = ?", [odd[dice.integers(len(odd))]]
            )


def use_database(made: Any, target: Path) -> None:
    from deepmf.serve.database import open_database
    from deepmf.serve.service import Service

    Service(made[0], open_database(str(target))).close()


KINDS = {
    "model file": Kind(make_models, change_model, use_model),
    "mapped model": Kind(make_mapped, change_mapped, use_mapped),
    "checkpoint": Kind(make_checkpoints, change_checkpoint, resume),
    "store": Kind(make_stores, change_mapped, use_store),
    "npz": Kind(make_npz, change_npz, lambda _, target: learn(target.with_suffix(".npz"))),
    "text": Kind(make_texts, change_file, lambda _, target: learn(find_file(target))),
    "json lines": Kind(make_json_lines, change_file, lambda _, target: learn(find_file(target))),
    "excel": Kind(make_excel, change_file, lambda _, target: learn(find_file(target))),
    "features": Kind(make_features, change_file, use_features),
    "keys": Kind(make_keys, change_file, find_key),
    "configuration": Kind(make_configurations, change_file, use_configuration),
    "database": Kind(make_database, change_database, use_database),
}


def work(name: str, numbers: Connection) -> None:
    """Be the process that opens files of one kind: receive numbers of variants, send what became of
    each."""
    for output in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    warnings.simplefilter("ignore")
    os.fsync = lambda fd: None  # thousands of files need not reach the disk
    kind = KINDS[name]
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place, "whole")
        whole.mkdir()
        made = kind.make(whole)
        numbers.send("ready")
        while True:
            folder = Path(place, "variant")
            number = numbers.recv()
            folder.mkdir()
            numbers.send(outcome(name, made, folder / "file", number))
            shutil.rmtree(folder)


def outcome(name: str, made: Any, target: Path, number: int) -> list[str]:
    """Return what became of one variant: "used", "refused", or what is wrong with our answer, and
    where."""
    kind, before = KINDS[name], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kind.change(made, target, np.random.default_rng([sorted(KINDS).index(name), number]))
    found = ["used", ""]
    try:
        kind.use(made, target)
    except DeepMFError as error:
        found = ["refused", ""]
        if not str(error) or "\n" in str(error):
            found = ["several lines", str(error)]
    except Exception as error:  # noqa: BLE001 (what we look for)
        found = [type(error).__name__, traceback.format_exc()]
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return found if taken < _MOST_BYTES else ["memory", f"{taken:,} bytes"]


class Worker:
    """Such a process, seen from outside."""

    def __init__(self, kind: str) -> None:
        self._numbers, there = FORKS.Pipe()
        self._process = FORKS.Process(target=work, args=(kind, there))
        self._process.start()
        there.close()  # so that its end is noticed here
        if self._receive(600) != "ready":
            self.close()
            raise RuntimeError(f"no whole files of the kind {kind!r} could be made")

    def answer(self, number: int) -> list[str]:
        """Return what became of a variant; a process that dies or waits is replaced by the
        caller."""
        self._numbers.send(number)
        found: list[str] = self._receive(_SECONDS)
        return found

    def _receive(self, seconds: float) -> Any:
        if not self._numbers.poll(seconds):
            return ["timeout", f"no answer within {seconds} s"]
        try:
            return self._numbers.recv()
        except EOFError:
            self._process.join()
            return ["crash", f"the process ended with {self._process.exitcode}"]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._numbers.close()


def fuzz(
    kind: str, numbers: range, *, seconds: float = float("inf")
) -> tuple[Counter[str], list[str]]:
    """Open variants of a kind, until a time is over; return how many had which outcome, and what is
    wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    worker = Worker(kind)
    start = time.monotonic()
    try:
        for number in numbers:
            if time.monotonic() - start > seconds:
                break
            what, where = worker.answer(number)
            counts[what] += 1
            if what in ("crash", "timeout"):
                worker.close()
                worker = Worker(kind)
            if what not in ("used", "refused"):
                wrong.append(f"{kind} {number}: {what}\n{where}")
    finally:
        worker.close()
    return counts, wrong


def main() -> int:
    """Fuzz kinds of files one after another, and say what became of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--variants", type=int, default=10_000, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="at most, for each kind"
    )
    given = parser.parse_args()
    all_wrong: list[str] = []
    for kind in given.kinds.split(","):
        numbers = range(given.first, given.first + given.variants)
        start = time.monotonic()
        counts, wrong = fuzz(kind, numbers, seconds=given.seconds)
        seconds = time.monotonic() - start
        told = ", ".join(f"{count:,} {what}" for what, count in counts.most_common())
        print(f"{kind}: {counts.total():,} variants in {seconds:,.0f} s: {told}", flush=True)  # noqa: T201
        all_wrong += wrong
    print("\n".join(all_wrong))  # noqa: T201
    return 1 if all_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
