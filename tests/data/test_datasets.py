"""Downloading from a local server that behaves well and badly; unpacking archives, whole and
corrupt."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import socket
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from tests.waiting import PATIENCE

from deepmf.data import datasets
from deepmf.data.datasets import DATASETS
from deepmf.data.download import Checksum, download, extract
from deepmf.datasets import Dataset
from deepmf.errors import BadSetting, BadSplit, DatasetUnavailable, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix

CONTENT = bytes(range(256)) * 4096  # 1 MiB: more than one piece

RIGHT = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest(), "computed in this test")


@dataclass
class Served:
    """What the server offers, and how it behaves."""

    address: str = ""
    content: bytes = CONTENT
    says_length: bool = True
    stops_after: int | None = None
    status: int = 200


def _handler(served: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if served.status != 200:
                self.send_error(served.status)
                return
            self.send_response(200)
            if served.says_length:
                self.send_header("Content-Length", str(len(served.content)))
            self.end_headers()
            self.wfile.write(served.content[: served.stops_after])

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    return Handler


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("no_proxy", "*")
    offer = Served()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(offer))
    offer.address = f"http://127.0.0.1:{server.server_port}/data.zip"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield offer
    server.shutdown()
    thread.join()
    server.server_close()


def test_progress_grows_to_the_total(served: Served, tmp_path: Path) -> None:
    steps: list[Any] = []
    target = tmp_path / "new" / "data.zip"
    download(served.address, target, checksum=RIGHT, progress=lambda *step: steps.append(step))
    assert [path.read_bytes() for path in target.parent.iterdir()] == [CONTENT]
    done, totals = zip(*steps, strict=True)
    assert len(done) > 1 and list(done) == sorted(set(done))
    assert done[-1] == len(CONTENT) and set(totals) == {len(CONTENT)}


@pytest.mark.parametrize(
    "harm, told",
    [
        ({"status": 404}, "404 Not Found"),
        ({"stops_after": 10}, "10 of"),
        ({"content": b"other bytes"}, RIGHT.digest),
    ],
)
def test_a_failure_is_told_and_leaves_an_older_target_alone(
    served: Served, tmp_path: Path, harm: dict[str, int | bytes], told: str
) -> None:
    target = tmp_path / "data.zip"
    target.write_bytes(b"the copy of last year")
    for name, value in harm.items():
        setattr(served, name, value)
    with pytest.raises(DatasetUnavailable, match=told) as caught:
        download(served.address, target, checksum=RIGHT)
    assert served.address in str(caught.value) and str(target) in str(caught.value)
    assert target.read_bytes() == b"the copy of last year" and list(tmp_path.iterdir()) == [target]


def test_a_server_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with ThreadPoolExecutor(1) as threads, socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"http://127.0.0.1:{mute.getsockname()[1]}/data.zip"
        download_alone = threads.submit(download, address, tmp_path / "data.zip", timeout=0.1)
        with pytest.raises(DatasetUnavailable, match="timed"):
            download_alone.result(PATIENCE)


@pytest.mark.parametrize(
    "harm",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:2000] + bytes(100) + content[2100:],
        lambda content: b"<html>log in first</html>",
    ],
)
def test_a_corrupt_archive_leaves_nothing_behind(
    tmp_path: Path, harm: Callable[[bytes], bytes]
) -> None:
    noise = hashlib.shake_256(b"noise").digest(10_000)
    archive = _put_zip(tmp_path / "a.zip", {"set/ratings.dat": noise})
    archive.write_bytes(harm(archive.read_bytes()))
    target = tmp_path / "out" / "ratings.dat"
    with pytest.raises(UnreadableFile, match="zip"):
        extract(archive, "set/ratings.dat", target)
    assert list(target.parent.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    archive = _put_zip(tmp_path / "a.zip", {"set/ratings.dat": b"1"})
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DatasetUnavailable, match="cannot be made"):
        extract(archive, "set/ratings.dat", tmp_path / "file" / "ratings.dat")


# (user, movie, rating): user 2 and movie 3 have no entry, as ids with gaps do.
ENTRIES = [(1, 5, 3), (1, 1, 4), (3, 2, 1), (4, 5, 4), (4, 4, 2)]

ARCHIVES = [name for name, dataset in DATASETS.items() if dataset.has_archive]
MATRIX = ObservedMatrix.from_entries(*zip(*ENTRIES, strict=True), datasets.info("ml-1m").scale)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, with every publisher out of reach."""
    monkeypatch.setenv("DEEPMF_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("no_proxy", "*")
    for name, dataset in list(DATASETS.items()):
        monkeypatch.setitem(
            DATASETS, name, replace(dataset, address=_closed_address(dataset.archive))
        )
    return tmp_path / "data"


def _closed_address(file_name: str) -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/{file_name}"


def _text(dataset: Dataset, entries: list[tuple[int, int, int]] = ENTRIES) -> bytes:
    """Entries written as the publisher of a data set writes them."""
    ratings = dataset.ratings
    lines: list[Any] = [[*entry, 978300760] for entry in entries]
    if not isinstance(ratings.row, int):
        lines.insert(0, [ratings.row, ratings.column, ratings.value, "timestamp"])
    width = 4 if "/" in ratings.member else 3  # those not from MovieLens have no timestamps
    return "".join(ratings.separator.join(map(str, line[:width])) + "\n" for line in lines).encode()


def _npz(entries: list[tuple[int, int, int]]) -> scipy.sparse.csr_matrix:
    rows, columns, values = np.array(entries, dtype=np.float32).T
    cells = rows.astype(int) - 1, columns.astype(int) - 1
    return scipy.sparse.csr_matrix((values, cells), shape=(4, 6))


def _put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _put_npz(path: Path, matrix: scipy.sparse.csr_matrix) -> Path:
    content = io.BytesIO()
    scipy.sparse.save_npz(content, matrix)
    return _put(path, content.getvalue())


def _put_zip(path: Path, members: dict[str, bytes]) -> Path:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return _put(path, content.getvalue())


def _expected(name: str) -> ObservedMatrix:
    dataset = datasets.info(name)
    times = None if dataset.ratings.time is None else [978300760] * len(ENTRIES)
    return ObservedMatrix.from_entries(*zip(*ENTRIES, strict=True), dataset.scale, times=times)


# The catalogue


def test_the_catalogue_is_consistent() -> None:
    assert datasets.names() == list(DATASETS) and len(DATASETS) == 12
    for name, dataset in DATASETS.items():
        assert dataset == datasets.info(name) and dataset.name == name
        assert dataset.address.startswith("https://") and dataset.licence.endswith(".")
        assert dataset.archive.endswith(".zip") or not dataset.has_archive
        if (checksum := dataset.checksum) is not None:
            n_bytes = hashlib.new(checksum.algorithm).digest_size
            assert len(bytes.fromhex(checksum.digest)) == n_bytes and checksum.verified
    assert datasets.info("ml-latest-small").checksum is None


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("ml1m", "ml-1m"), ("GOODBOOKS-10K", "goodbooks-10k"), ("goodbooks", "goodbooks-10k")],
)
def test_an_unknown_name_is_told_with_the_nearest(wrong: str, right: str) -> None:
    for ask in (datasets.info, datasets.find, datasets.fetch, datasets.load, datasets.load_split):
        with pytest.raises(BadSetting, match=f"'{right}'"):
            ask(wrong)
    with pytest.raises(BadSetting, match="ml-1m"):  # which has a published split
        datasets.load_split("ml-20m")


# The folder


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"DEEPMF_DATA": "/d", "XDG_CACHE_HOME": "/x"}, "/d"),
        ("linux", {"DEEPMF_DATA": "~/d"}, "/home/ann/d"),
        ("linux", {"DEEPMF_DATA": "", "XDG_CACHE_HOME": "/x"}, "/x/deepmf"),
        ("linux", {}, "/home/ann/.cache/deepmf"),
        ("darwin", {}, "/home/ann/Library/Caches/deepmf"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/deepmf"),
        ("win32", {}, "/home/ann/AppData/Local/deepmf"),
    ],
)
def test_the_folder_follows_the_platform_and_the_environment(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str
) -> None:
    for name in ("DEEPMF_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/ann", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert datasets.folder() == Path(expected)


# A copy that is there already


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_the_official_file_is_found_and_read(data: Path, name: str, ending: str) -> None:
    member = datasets.info(name).ratings.member
    content = _text(datasets.info(name))
    layout = member if "/" in member else f"{name}/{member}"
    path = _put(data / f"{layout}{ending}", gzip.compress(content) if ending else content)
    assert datasets.find(name) == datasets.fetch(name) == path
    assert datasets.load(name) == _expected(name)


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("place", ["", "own folder"])
def test_the_official_archive_is_found_unpacked_and_read(data: Path, name: str, place: str) -> None:
    dataset = datasets.info(name)
    member = dataset.ratings.member
    folder = data / name if place else data
    members = {member: _text(dataset), "../evil.txt": b"evil"}
    archive = _put_zip(folder / dataset.archive, members)
    assert datasets.find(name) == archive
    assert datasets.load(name) == _expected(name)
    unpacked = data / name / Path(member).name
    assert datasets.find(name) == unpacked
    assert {path for path in data.parent.rglob("*") if path.is_file()} == {archive, unpacked}


def test_another_file_of_an_archive_is_found_or_unpacked(data: Path) -> None:
    _put_zip(data / "ml-1m.zip", {"ml-1m/users.dat": b"1::F::1::10::48067\n"})
    unpacked = datasets.fetch_file("ml-1m", "ml-1m/users.dat")
    assert unpacked == data / "ml-1m" / "users.dat"
    assert unpacked.read_bytes() == b"1::F::1::10::48067\n"
    unpacked.write_bytes(b"own\n")
    assert datasets.fetch_file("ml-1m", "ml-1m/users.dat").read_bytes() == b"own\n"


def test_a_file_without_a_folder_of_its_own_is_not_taken_for_a_set(data: Path) -> None:
    _put(data / "ratings.csv", b"user_id,book_id,rating\n1,1,1\n")
    assert all(datasets.find(name) is None for name in datasets.names())


def test_the_npz_form_gives_the_matrix_of_the_text_form(data: Path) -> None:
    path = _put_npz(data / "ml-1m" / "rating.npz", _npz(ENTRIES))
    assert datasets.find("ml-1m") == path
    from_npz = datasets.load("ml-1m")
    assert from_npz.row_labels.tolist() == [1, 3, 4]
    assert from_npz.column_labels.tolist() == [1, 2, 4, 5]
    _put(data / "ml-1m" / "ratings.dat", _text(datasets.info("ml-1m")))
    assert from_npz == MATRIX
    assert datasets.load("ml-1m") == _expected("ml-1m")  # the text has times, too


def test_a_pair_that_the_publisher_repeats_keeps_its_last_value(data: Path) -> None:
    _put(data / "filmtrust" / "ratings.txt", b"1 1 2\n1 2 3.5\n1 1 0.5\n")
    assert datasets.load("filmtrust").values.tolist() == [0.5, 3.5]


def test_a_corrupt_archive_of_the_user_is_told_and_kept(data: Path) -> None:
    archive = _put(data / "ml-1m.zip", b"PK but no archive")
    with pytest.raises(UnreadableFile, match="zip") as caught:
        datasets.load("ml-1m")
    assert datasets.info("ml-1m").address in str(caught.value)
    assert archive.exists()


# No copy here


@pytest.mark.parametrize("name", DATASETS)
def test_offline_one_sentence_says_what_to_put_where(data: Path, name: str) -> None:
    dataset = datasets.info(name)
    assert datasets.find(name) is None
    with pytest.raises(DatasetUnavailable) as caught:
        datasets.load(name)
    message = str(caught.value)
    file = dataset.archive if dataset.has_archive else dataset.ratings.member
    assert dataset.address in message and message.endswith(f"put it at {data / file}")
    assert "\n" not in message


def _publish(
    monkeypatch: pytest.MonkeyPatch, archive: Path, name: str, *, checksum: str | None = None
) -> None:
    """Let the catalogue name a local archive, with its own checksum or the one given."""
    digest = checksum or hashlib.md5(archive.read_bytes()).hexdigest()
    there = {"address": archive.as_uri(), "checksum": Checksum("md5", digest, "in this test")}
    monkeypatch.setitem(DATASETS, name, replace(datasets.info(name), **there))


def test_a_set_is_downloaded_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {"ml-20m/ratings.csv": _text(datasets.info("ml-20m"))}
    archive = _put_zip(tmp_path / "publisher" / "ml-20m.zip", members)
    n_bytes = archive.stat().st_size
    _publish(monkeypatch, archive, "ml-20m")
    steps: list[tuple[int, int | None]] = []
    matrix = datasets.load("ml-20m", progress=lambda *counts: steps.append(counts))
    assert matrix == _expected("ml-20m") and steps[-1] == (n_bytes, n_bytes)
    archive.unlink()
    assert datasets.fetch("ml-20m") == data / "ml-20m" / "ratings.csv"
    assert datasets.load("ml-20m") == matrix


@pytest.mark.parametrize(("checksum", "word"), [("0" * 32, "0" * 32), (None, "archive")])
def test_a_download_that_is_not_what_it_should_be_is_not_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checksum: str | None, word: str
) -> None:
    archive = _put_zip(tmp_path / "publisher" / "ml-1m.zip", {"ml-1m/other.dat": b"1::1::1::1\n"})
    _publish(monkeypatch, archive, "ml-1m", checksum=checksum)
    with pytest.raises(DatasetUnavailable, match=word):
        datasets.load("ml-1m")
    assert [path for path in data.rglob("*") if path.is_file()] == []


# Published splits


def test_the_split_of_ml_1m_follows_the_masks(data: Path) -> None:
    _put_npz(data / "ml-1m" / "rating.npz", _npz(ENTRIES))
    masks = {"train": ENTRIES[:3], "val": ENTRIES[3:4], "test": ENTRIES[4:]}
    for part, entries in masks.items():
        _put_npz(data / "ml-1m" / f"{part}_mask.npz", _npz(entries).astype(bool))
    split = datasets.load_split("ml-1m")
    parts = split.train, split.validation, split.test
    for matrix, entries in zip(parts, masks.values(), strict=True):
        assert list(zip(*map(np.ndarray.tolist, matrix.entries()), strict=True)) == sorted(entries)
        assert (matrix.rows, matrix.columns) == (MATRIX.rows, MATRIX.columns)


def test_masks_that_are_absent_or_of_another_matrix_are_refused(data: Path) -> None:
    _put_npz(data / "ml-1m" / "rating.npz", _npz(ENTRIES))
    with pytest.raises(DatasetUnavailable, match="nmduc/discrete-matrix-factorization") as caught:
        datasets.load_split("ml-1m")
    assert str(caught.value).endswith(f"put it at {data / 'ml-1m' / 'train_mask.npz'}")
    for part, entries in {"train": ENTRIES, "val": ENTRIES[:1], "test": [(2, 6, 1)]}.items():
        _put_npz(data / "ml-1m" / f"{part}_mask.npz", _npz(entries).astype(bool))
    with pytest.raises(BadSplit, match="row 2"):
        datasets.load_split("ml-1m")


@pytest.mark.parametrize("form", ["files", "archive"])
def test_the_split_of_ml_100k_is_u1_without_validation(
    data: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    dataset = datasets.info("ml-100k")
    assert dataset.split is not None
    split_there = replace(dataset.split, address=dataset.address)
    monkeypatch.setitem(DATASETS, "ml-100k", replace(dataset, split=split_there))
    members = {"u.data": ENTRIES, "u1.base": ENTRIES[1:], "u1.test": ENTRIES[:1]}
    files = {f"ml-100k/{name}": _text(dataset, entries) for name, entries in members.items()}
    if form == "archive":
        _put_zip(data / "ml-100k.zip", files)
    else:
        for name, content in files.items():
            _put(data / name, content)
    split = datasets.load_split("ml-100k")
    assert (split.train.n_entries, split.validation.n_entries, split.test.n_entries) == (4, 0, 1)
    assert [part.tolist() for part in split.test.entries()] == [[1], [5], [3.0]]
    assert split.train.rows == split.validation.rows == split.test.rows == MATRIX.rows


@pytest.mark.parametrize("name", ["gowalla", "yelp2018", "amazon-book"])
def test_the_split_of_lightgcn_is_read_from_lists_or_positions(data: Path, name: str) -> None:
    with pytest.raises(DatasetUnavailable, match=r"train\.txt"):
        datasets.load(name)
    _put(data / name / "train.txt", b"0 2 1 4 3\n1 0\n2 4 \n")
    with pytest.raises(DatasetUnavailable, match=r"test\.txt"):
        datasets.load_split(name)
    _put(data / name / "test.txt", b"0 0\n1 3\n2\n")
    split = datasets.load_split(name)
    assert split.train.shape == split.test.shape == (3, 5)
    assert (split.train.n_entries, split.validation.n_entries) == (6, 0)
    assert list(zip(*split.test.entries()[:2], strict=True)) == [(0, 0), (1, 3)]
    for part, matrix in (("train", split.train), ("test", split.test)):
        (data / name / f"{part}.txt").unlink()
        _put_npz(data / name / f"{part}.npz", scipy.sparse.csr_matrix(matrix.to_sparse()))
    again = datasets.load_split(name)
    assert (again.train, again.test) == (split.train, split.test)


# The real files, where they are


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Path:
    given = os.environ.get("DEEPMF_DATA")
    place = Path(given) if given else Path(__file__).parents[3] / "shared" / "data"
    if not place.is_dir():
        pytest.skip("needs MovieLens files: set DEEPMF_DATA to the folder with ml-100k/ and ml-1m/")
    monkeypatch.setenv("DEEPMF_DATA", str(place))
    return place


def _need(real: Path, *files: str) -> None:
    for file in files:
        if not (real / file).is_file():
            pytest.skip(f"needs {file} in {real}")


def test_real_ml_100k(real: Path) -> None:
    _need(real, "ml-100k/u.data", "ml-100k/u1.base", "ml-100k/u1.test")
    matrix = datasets.load("ml-100k")
    assert (matrix.shape, matrix.n_entries) == ((943, 1682), datasets.info("ml-100k").n_entries)
    split = datasets.load_split("ml-100k")
    counts = (split.train.n_entries, split.validation.n_entries, split.test.n_entries)
    assert counts == (80_000, 0, 20_000)


def test_real_ml_1m(real: Path) -> None:
    _need(real, "ml-1m/rating.npz")
    matrix = datasets.load("ml-1m")
    assert (matrix.shape, matrix.n_entries) == ((6040, 3706), datasets.info("ml-1m").n_entries)
    assert matrix.row_labels.tolist() == list(range(1, 6041))
    assert (matrix.column_labels[0], matrix.column_labels[-1]) == (1, 3952)


@pytest.mark.slow
def test_real_split_of_ml_1m(real: Path) -> None:
    _need(
        real, "ml-1m/rating.npz", *(f"ml-1m/{part}_mask.npz" for part in ("train", "val", "test"))
    )
    split = datasets.load_split("ml-1m")
    counts = (split.train.n_entries, split.validation.n_entries, split.test.n_entries)
    assert counts == (712_648, 37_508, 250_053)
