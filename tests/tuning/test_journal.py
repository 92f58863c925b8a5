"""Journals of studies: torn tails are cut, damage is noticed, a full disk changes nothing, one process writes."""

import json
import os
import random
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

import deepmf
from deepmf.data.splits import Split, split_entries
from deepmf.data.synthetic.generator import generate
from deepmf.errors import CannotSave, DeepMFError, DeepMFWarning, UnreadableFile
from deepmf.tuning.journal import Journal, _checksum
from deepmf.tuning.study import Study

FIRST = {"op_code": 0, "study_name": "deepmf", "directions": [1]}
HOLD = """
import sys, time
from pathlib import Path
from deepmf.tuning.journal import Journal
with Journal(Path(sys.argv[1])).held():
    print("held", flush=True)
    time.sleep(60)
"""
SECOND = {"op_code": 2, "study_id": 0, "user_attr": {"made for": {}}}


@pytest.fixture(scope="module")
def split() -> Split:
    return split_entries(generate(20, 15, density=0.4, seed=0).matrix, seed=0)


@pytest.fixture(scope="module")
def written(split: Split, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a study of three trials."""
    file = tmp_path_factory.mktemp("study") / "means.study"
    Study("means", split.train, split.validation, file=file).run(3)
    return file.read_bytes()


def test_what_is_appended_is_read_here_and_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "s.study"
    one = Journal(path)
    assert one.read_logs(0) == []
    one.append_logs([FIRST])
    other = Journal(path)
    one.append_logs([SECOND, SECOND])
    other.append_logs([FIRST])
    assert one.read_logs(0) == other.read_logs(0) == [FIRST, SECOND, SECOND, FIRST]
    assert one.read_logs(3) == [FIRST]
    assert [path.name for path in tmp_path.iterdir()] == ["s.study"]


def test_optuna_itself_reads_it(written: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.study"
    path.write_bytes(written)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    assert len(optuna.load_study(study_name="deepmf", storage=storage).trials) == 3


def test_a_torn_tail_is_cut_off_and_told(split: Split, written: bytes, tmp_path: Path) -> None:
    file = tmp_path / "means.study"
    for n_lost in (1, 20, 200):
        file.write_bytes(written[:-n_lost])
        study = Study("means", split.train, split.validation, file=file)
        assert len(study.tried) == 2
        with pytest.warns(DeepMFWarning, match="the last line of .*means.study was torn and is cut off"):
            study.run(4)
        assert len(Study("means", split.train, split.validation, file=file).run(5).tried) == 5  # without a word


def test_a_first_line_that_is_torn(split: Split, written: bytes, tmp_path: Path) -> None:
    file = tmp_path / "means.study"
    file.write_bytes(written[:30])
    with pytest.warns(DeepMFWarning, match=r"torn and is cut off \(30 bytes\)"):
        Study("means", split.train, split.validation, file=file)


def test_damage_is_told_with_its_line(written: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.study"
    lines = written.splitlines(keepends=True)
    for damaged in (
        [*lines[:4], lines[4].replace(b'"op_code":', b'"op_code": '), *lines[5:]],
        [*lines[:4], lines[5], lines[4], *lines[6:]],
        lines[:4] + lines[5:],
    ):
        path.write_bytes(b"".join(damaged))
        with pytest.raises(UnreadableFile) as caught:
            Journal(path)
        assert str(caught.value) == (f"{path} is damaged in line 5; give another file, or go on from its first 4 lines")
    path.write_bytes(b"".join(lines[:4]))
    assert len(Journal(path).read_logs(0)) == 4


def test_a_full_disk_is_told_as_such_and_changes_nothing(split: Split, written: bytes, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    file = tmp_path / "means.study"
    file.write_bytes(written)
    study = Study("means", split.train, split.validation, file=file)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(written) + 50, hard))  # in the middle of the next line
    try:
        with pytest.raises(CannotSave, match=r"means.study could not be written \(File too large\); the trials before"):
            study.run(4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_bytes() == written
    assert len(Study("means", split.train, split.validation, file=file).run(4).tried) == 4


def test_a_file_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "s.study")
    with journal.held():
        journal.append_logs([FIRST])
        journal.path.unlink()
        with pytest.raises(CannotSave, match="it was deleted while the study ran"):
            journal.append_logs([SECOND])


@pytest.fixture
def holder(split: Split, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the journal of a study."""
    Study("means", split.train, split.validation, file=tmp_path / "means.study").run(1)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "means.study")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(deepmf.__file__).parents[1])},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_one_process_at_a_time_and_a_dead_one_keeps_nobody_waiting(
    split: Split, tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    study = Study("means", split.train, split.validation, file=tmp_path / "means.study")
    assert len(study.tried) == 1  # looking is allowed
    start = time.monotonic()
    with pytest.raises(CannotSave, match="means.study is in use: another process runs the trials of this study"):
        study.run(2)
    holder.kill()
    holder.wait()
    assert len(study.run(2).tried) == 2
    assert time.monotonic() - start < 10


VALUES = [None, True, -1, 10**400, 1e308, "x" * 1000, [], {}, [[[]]], "NaN"]


def mutated(original: bytes, dice: random.Random) -> bytes:
    """A study with something wrong in it."""
    lines = original.splitlines(keepends=True)
    at = dice.randrange(len(lines))

    def flip() -> bytes:
        content = bytearray(original)
        for _ in range(dice.choice([1, 1, 3, 50])):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        return bytes(content)

    def swap() -> bytes:
        other = dice.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
        return b"".join(lines)

    def other_value() -> bytes:
        log = json.loads(lines[at])
        log[dice.choice(list(log))] = dice.choice(VALUES)
        lines[at] = json.dumps(log, separators=(",", ":")).encode() + b"\n"
        return b"".join(lines)

    def nested() -> bytes:
        depth = dice.choice([10, 100_000])
        lines[at] = b'{"a":' * depth + b"1" + b"}" * depth + b"\n"
        return b"".join(lines)

    ways: list[Callable[[], bytes]] = [
        flip,
        swap,
        other_value,
        nested,
        lambda: original[: dice.randrange(len(original))],
        lambda: b"".join(lines[:at] + lines[at + 1 :]),
        lambda: b"".join([*lines[:at], dice.randbytes(dice.randrange(300)), *lines[at:]]),
        lambda: original + bytes(dice.randrange(100)),
    ]
    return dice.choice(ways)()


def test_whatever_is_wrong_with_a_file_is_an_error_of_ours(split: Split, written: bytes, tmp_path: Path) -> None:
    file = tmp_path / "means.study"
    outcomes: set[Any] = set()
    for seed in range(300):
        file.write_bytes(mutated(written, random.Random(seed)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeepMFWarning)
            try:
                tried = Study("means", split.train, split.validation, file=file).tried
            except DeepMFError as error:
                outcomes.add(type(error))
            else:
                outcomes.add(len(tried))
    assert {UnreadableFile, 0, 1, 2, 3} >= outcomes > {UnreadableFile, 3}


def sealed(lines: list[bytes]) -> bytes:
    """Return lines with checksums that are right."""
    sealed, check = b"", b""
    for line in lines:
        body = b"{" + line.rstrip(b"\n").split(b'",', 1)[1]
        check = _checksum(check, body)
        sealed += b'{"check":"' + check + b'",' + body[1:] + b"\n"
    return sealed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb'"op_code":5', b'"op_code":"5"'),
        (rb'"values":\[[0-9.]*\]', b'"values":["low"]'),
        (rb'"values":\[[0-9.]*\]', b'"values":[]'),
        (rb'"values":\[[0-9.]*\]', b'"values":[NaN]'),
        (rb'"param_value_internal":[0-9.]*', b'"param_value_internal":"much"'),
        (rb'"param_value_internal":[0-9.]*', b'"param_value_internal":1e300'),
        (rb'"state":1', b'"state":99'),
        (rb'"made for":', b'"made for":[],"x":'),
        (rb'"datetime_start":"[^"]*"', b'"datetime_start":7'),
        (rb'"distribution":"', b'"distribution":"['),
        (rb'"op_code":4', b'"op_code":4,,'),
        (rb'"fixed_params":\{', b'"fixed_params":{"nobody":1,'),
    ],
)
def test_lines_that_lie_although_their_checksums_are_right(
    split: Split, written: bytes, tmp_path: Path, old: bytes, new: bytes
) -> None:
    changed, n_changed = re.subn(old, lambda _: new, written)
    assert n_changed
    (tmp_path / "s.study").write_bytes(sealed(changed.splitlines(keepends=True)))
    with pytest.raises(UnreadableFile, match="damaged"):
        Study("means", split.train, split.validation, file=tmp_path / "s.study").run(5)
