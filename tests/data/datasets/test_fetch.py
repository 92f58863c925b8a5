"""Downloading from a local server that behaves well and badly; unpacking archives, whole and corrupt."""

import hashlib
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deepmf.data.datasets.catalogue import Checksum
from deepmf.data.datasets.fetch import download, extract
from deepmf.errors import DatasetUnavailable, UnreadableFile

CONTENT = bytes(range(256)) * 4096  # 1 MiB: more than one piece
RIGHT = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest(), "computed in this test")


@dataclass
class Served:
    """What the server offers, how it behaves, and the `Range` of each request it got."""

    address: str = ""
    content: bytes = CONTENT
    knows_ranges: bool = True
    says_length: bool = True
    stops_after: int | None = None
    status: int = 200
    ranges: list[str | None] = field(default_factory=list)


def _handler(served: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            served.ranges.append(asked)
            if served.status != 200:
                self.send_error(served.status)
                return
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and served.knows_ranges else 0
            if start >= len(served.content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(served.content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = served.content[start:]
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(served.content) - 1}/{len(served.content)}")
            if served.says_length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: served.stops_after])

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


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def test_a_file_arrives_whole_and_leaves_nothing_beside_it(served: Served, tmp_path: Path) -> None:
    target = tmp_path / "new" / "data.zip"
    download(served.address, target, checksum=RIGHT)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_progress_grows_to_the_total(served: Served, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    download(served.address, tmp_path / "data.zip", progress=lambda *counts: seen.append(counts))
    done = [counts[0] for counts in seen]
    assert len(seen) > 1
    assert done == sorted(set(done))
    assert {counts[1] for counts in seen} == {len(CONTENT)}
    assert done[-1] == len(CONTENT)


def test_the_total_is_none_where_the_server_does_not_say(served: Served, tmp_path: Path) -> None:
    served.says_length = False
    seen: list[tuple[int, int | None]] = []
    download(served.address, tmp_path / "data.zip", progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (len(CONTENT), None)


def test_an_interrupted_download_continues_where_it_stopped(served: Served, tmp_path: Path) -> None:
    target = tmp_path / "data.zip"
    served.stops_after = 300_000
    with pytest.raises(DatasetUnavailable, match="stopped after 300000 of 1048576 bytes"):
        download(served.address, target, checksum=RIGHT)
    assert not target.exists()
    assert _part(target).read_bytes() == CONTENT[:300_000]

    served.stops_after = None
    seen: list[tuple[int, int | None]] = []
    download(served.address, target, checksum=RIGHT, progress=lambda *counts: seen.append(counts))
    assert served.ranges == [None, "bytes=300000-"]
    assert target.read_bytes() == CONTENT
    assert seen[0][0] > 300_000
    assert {counts[1] for counts in seen} == {len(CONTENT)}
    assert not _part(target).exists()


def test_a_server_without_ranges_sends_everything_again(served: Served, tmp_path: Path) -> None:
    target = tmp_path / "data.zip"
    _part(target).write_bytes(CONTENT[:1000])
    served.knows_ranges = False
    download(served.address, target, checksum=RIGHT)
    assert served.ranges == ["bytes=1000-"]
    assert target.read_bytes() == CONTENT


def test_a_part_that_is_whole_already_is_only_verified(served: Served, tmp_path: Path) -> None:
    target = tmp_path / "data.zip"
    _part(target).write_bytes(CONTENT)
    download(served.address, target, checksum=RIGHT)
    assert served.ranges == [f"bytes={len(CONTENT)}-"]
    assert target.read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_started_afresh(served: Served, tmp_path: Path) -> None:
    target = tmp_path / "data.zip"
    _part(target).write_bytes(CONTENT + b"more")
    download(served.address, target, checksum=RIGHT)
    assert served.ranges == [f"bytes={len(CONTENT) + 4}-", None]
    assert target.read_bytes() == CONTENT


def test_without_a_checksum_no_two_editions_are_joined(served: Served, tmp_path: Path) -> None:
    target = tmp_path / "data.zip"
    _part(target).write_bytes(b"an older edition")
    download(served.address, target)
    assert served.ranges == [None]
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("begun", [b"", b"of another file"])
def test_wrong_bytes_are_deleted_and_the_digests_told(served: Served, tmp_path: Path, begun: bytes) -> None:
    target = tmp_path / "data.zip"
    if begun:
        _part(target).write_bytes(begun)
    else:
        served.content = CONTENT[::-1]
    with pytest.raises(DatasetUnavailable) as caught:
        download(served.address, target, checksum=RIGHT)
    for told in (served.address, RIGHT.digest, RIGHT.verified, str(target)):
        assert told in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("harm", [{"status": 404}, {"stops_after": 10}, {"content": b"other bytes"}])
def test_a_failure_leaves_an_older_target_alone(served: Served, tmp_path: Path, harm: dict[str, int | bytes]) -> None:
    target = tmp_path / "data.zip"
    target.write_bytes(b"the copy of last year")
    for name, value in harm.items():
        setattr(served, name, value)
    with pytest.raises(DatasetUnavailable):
        download(served.address, target, checksum=RIGHT)
    assert target.read_bytes() == b"the copy of last year"


def test_an_absent_file_is_told_in_one_sentence(served: Served, tmp_path: Path) -> None:
    served.status = 404
    target = tmp_path / "data.zip"
    with pytest.raises(DatasetUnavailable) as caught:
        download(served.address, target)
    assert str(caught.value) == (
        f"{served.address} could not be downloaded (404 Not Found); download it by other means and put it at {target}"
    )
    assert list(tmp_path.iterdir()) == []


def test_no_server_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as unused:  # bound but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/data.zip"
        with pytest.raises(DatasetUnavailable, match="Connection refused") as caught:
            download(address, tmp_path / "data.zip")
    assert address in str(caught.value)
    assert str(tmp_path / "data.zip") in str(caught.value)


def test_a_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"http://127.0.0.1:{mute.getsockname()[1]}/data.zip"
        begun = time.monotonic()
        with pytest.raises(DatasetUnavailable, match="timed out"):
            download(address, tmp_path / "data.zip", timeout=0.1)
    assert time.monotonic() - begun < 10


def test_a_target_that_cannot_be_written_is_told(served: Served, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DatasetUnavailable, match="could not be downloaded"):
        download(served.address, tmp_path / "file" / "data.zip")


def _archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_one_member_is_unpacked_and_no_other(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a.zip", {"set/ratings.dat": CONTENT, "set/users.dat": b"1"})
    target = tmp_path / "out" / "ratings.dat"
    extract(archive, "set/ratings.dat", target, checksum=RIGHT)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_names_that_lead_out_of_the_folder_lead_nowhere(tmp_path: Path) -> None:
    names = ["../../evil.txt", "/tmp/evil.txt", "..\\evil.txt", "../set/ratings.dat"]
    archive = _archive(tmp_path / "a.zip", dict.fromkeys(names, b"evil") | {"set/ratings.dat": b"good"})
    target = tmp_path / "deep" / "out" / "ratings.dat"
    extract(archive, "set/ratings.dat", target)
    assert target.read_bytes() == b"good"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive, target]


def test_an_archive_without_the_member_is_refused(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a.zip", {"../set/ratings.dat": b"evil"})
    with pytest.raises(UnreadableFile, match=r"a\.zip holds no set/ratings\.dat"):
        extract(archive, "set/ratings.dat", tmp_path / "out" / "ratings.dat")
    assert list((tmp_path / "out").iterdir()) == []


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flipped(content: bytes) -> bytes:
    return content[:2000] + bytes(255 - byte for byte in content[2000:2100]) + content[2100:]


@pytest.mark.parametrize("harm", [_cut, _flipped, lambda content: b"<html>log in first</html>"])
def test_a_corrupt_archive_leaves_nothing_behind(tmp_path: Path, harm: type) -> None:
    noise = hashlib.shake_256(b"noise").digest(10_000)
    archive = _archive(tmp_path / "a.zip", {"set/ratings.dat": noise})
    archive.write_bytes(harm(archive.read_bytes()))
    target = tmp_path / "out" / "ratings.dat"
    with pytest.raises(UnreadableFile, match="not a whole zip archive"):
        extract(archive, "set/ratings.dat", target)
    assert list(target.parent.iterdir()) == []


def test_a_member_with_other_bytes_leaves_an_older_target_alone(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a.zip", {"set/ratings.dat": b"other"})
    target = tmp_path / "ratings.dat"
    target.write_bytes(b"the copy of last year")
    with pytest.raises(UnreadableFile, match=RIGHT.digest):
        extract(archive, "set/ratings.dat", target, checksum=RIGHT)
    assert target.read_bytes() == b"the copy of last year"
    assert sorted(tmp_path.iterdir()) == [archive, target]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a.zip", {"set/ratings.dat": b"1"})
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DatasetUnavailable, match="could not be unpacked"):
        extract(archive, "set/ratings.dat", tmp_path / "file" / "ratings.dat")
