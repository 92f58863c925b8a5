"""Frames in pieces: every format is the same as if they had been one, and empty ones are files too."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import polars
import pytest

from deepmf.cli.output_frames import check_frame_target, write_frames
from deepmf.errors import BadSetting

SCHEMA = {"row": polars.String, "prediction": polars.Float64}
FIRST = polars.DataFrame({"row": ["é", "b,c"], "prediction": [1.5, 2.0]}, schema=SCHEMA)
SECOND = polars.DataFrame({"row": ['"d"'], "prediction": [0.1]}, schema=SCHEMA)
READERS = {
    "csv": polars.read_csv,
    "tsv": lambda path: polars.read_csv(path, separator="\t", quote_char=None),
    "parquet": polars.read_parquet,
    "jsonl": lambda path: polars.read_ndjson(path, schema=SCHEMA),
    "CSV": polars.read_csv,
}


@pytest.mark.parametrize("ending", READERS)
def test_pieces_become_one_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"p.{ending}"
    check_frame_target(str(path), inputs=())
    write_frames(iter([FIRST, SECOND]), SCHEMA, str(path))
    assert READERS[ending](path).equals(polars.concat([FIRST, SECOND]))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_nothing_is_a_file_with_a_header(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"p.{ending}"
    write_frames([], SCHEMA, str(path))
    if ending == "jsonl":
        assert path.read_text() == ""
    else:
        assert READERS[ending](path).columns == list(SCHEMA)


def test_endings(tmp_path: Path) -> None:
    check_frame_target("-", inputs=())
    for name in ("p", "p.txt", "p.csv.gz", "p.json"):
        with pytest.raises(BadSetting, match="must end in .csv, .tsv, .jsonl, .parquet; got "):
            check_frame_target(str(tmp_path / name), inputs=())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("standard_format", "text"),
    [
        (".csv", 'row,prediction\né,1.5\n"b,c",2.0\n"""d""",0.1\n'),
        (
            ".jsonl",
            '{"row":"é","prediction":1.5}\n{"row":"b,c","prediction":2.0}\n{"row":"\\"d\\"","prediction":0.1}\n',
        ),
    ],
)
def test_standard_output_is_utf_8(capfdbinary: pytest.CaptureFixture[bytes], standard_format: str, text: str) -> None:
    write_frames([FIRST, SECOND], SCHEMA, "-", standard_format=standard_format)
    assert capfdbinary.readouterr().out == text.encode()


SLOW = """
import sys, time, polars
from deepmf.cli.output_frames import write_frames

def frames():
    for number in range(1000):
        yield polars.DataFrame({"number": [number] * 100_000})
        print("going", flush=True)
        time.sleep(0.01)

try:
    write_frames(frames(), {"number": polars.Int64}, sys.argv[1])
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_ctrl_c_leaves_nothing_and_says_nothing(tmp_path: Path, ending: str) -> None:
    command = [sys.executable, "-c", SLOW, str(tmp_path / f"p.{ending}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert list(tmp_path.iterdir()) == []


IDS = polars.DataFrame({"row": ["=1+1", "+a", "-a", "@a", "a=1", "'"], "prediction": [-1.0] * 6}, schema=SCHEMA)


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_formulas_become_text_where_asked_for(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"p.{ending}"
    write_frames([IDS], SCHEMA, str(path))
    assert READERS[ending](path).equals(IDS)
    write_frames([IDS], SCHEMA, str(path), safe_csv=True)
    assert READERS[ending](path)["row"].to_list() == ["'=1+1", "'+a", "'-a", "'@a", "a=1", "'"]
    assert READERS[ending](path)["prediction"].to_list() == [-1.0] * 6


def test_only_spreadsheets_have_formulas(tmp_path: Path) -> None:
    check_frame_target("-", inputs=(), safe_csv=True)
    check_frame_target(str(tmp_path / "p.TSV"), inputs=(), safe_csv=True)
    with pytest.raises(BadSetting, match=r"--safe-csv is for csv and tsv; got '.*p.parquet'"):
        check_frame_target(str(tmp_path / "p.parquet"), inputs=(), safe_csv=True)
    with pytest.raises(BadSetting, match="--safe-csv is for csv and tsv; got --json"):
        check_frame_target("-", inputs=(), safe_csv=True, as_json=True)


def test_ids_steer_no_terminal(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    frame = polars.DataFrame({"row": ["a\x1b[2J"], "prediction": [1.0]}, schema=SCHEMA)
    write_frames([frame], SCHEMA, "-")
    assert capfdbinary.readouterr().out == b"row,prediction\na\x1b[2J,1.0\n"  # a pipe gets the ids as they are
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    write_frames([frame], SCHEMA, "-")
    assert capfdbinary.readouterr().out == b"row,prediction\na\\x1b[2J,1.0\n"
