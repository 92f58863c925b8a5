"""The paths through the code that docs/architecture.md lists are the calls that really happen."""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fastapi.testclient import TestClient

from deepmf import ALS, OrdinalDMF, read_matrix
from deepmf.datasets import generate
from deepmf.serve import Service, create_app, open_database

SOURCE = Path(__file__).parents[1] / "src" / "deepmf"
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
PATHS = dict(
    re.findall(
        r"^\*\*(\w+)\*\*.*?\n\n```text\n(.*?)```",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)
MATRIX = generate(40, 30, density=0.4, seed=0).matrix


def listed_calls(path: str) -> list[str]:
    """Return the calls of a path as the page lists them: `models/base.py Model.fit`."""
    return [" ".join(line.split()[:2]) for line in PATHS[path].splitlines()]


@contextmanager
def record_calls() -> Iterator[dict[str, None]]:
    """Note every function of the package when it is first called, in all threads that start
    meanwhile."""
    calls: dict[str, None] = {}
    names: dict[CodeType, str] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)):
            if code not in names:
                place = Path(code.co_filename).relative_to(SOURCE).as_posix()
                names[code] = f"{place} {code.co_qualname.rpartition('<locals>.')[2]}"
            calls.setdefault(names[code])

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def check_path(path: str, calls: dict[str, None]) -> None:
    listed, happened = listed_calls(path), list(calls)
    assert len(listed) >= 5 and [call for call in listed if call not in calls] == []
    assert sorted(listed, key=happened.index) == listed


def test_the_path_of_a_file(tmp_path: Path) -> None:
    MATRIX.write(tmp_path / "ratings.csv")
    with record_calls() as calls:
        assert read_matrix(tmp_path / "ratings.csv").n_entries == MATRIX.n_entries
    check_path("read", calls)


def test_the_path_of_a_fit() -> None:
    with record_calls() as calls:
        OrdinalDMF(
            epochs=1, hidden_sizes=(8,), latent_size=4, linear_iterations=4, device="cpu"
        ).fit(MATRIX)
    check_path("fit", calls)


def test_the_path_of_a_prediction() -> None:
    model = ALS(epochs=1).fit(MATRIX)
    with record_calls() as calls:
        model.predict(MATRIX.row_labels[:3], MATRIX.column_labels[:3])
    check_path("predict", calls)


def test_the_path_of_a_recommendation() -> None:
    model = ALS(epochs=1).fit(MATRIX)
    with record_calls() as calls:
        model.recommend(MATRIX.row_labels[0], n=3)
    check_path("recommend", calls)


def test_the_path_of_a_write(tmp_path: Path) -> None:
    model, database = ALS(epochs=1).fit(MATRIX), open_database(str(tmp_path / "entries.sqlite"))
    url = f"/v1/rows/{MATRIX.row_labels[0]}/entries"
    body = {"entries": [{"column": MATRIX.column_labels[0], "value": 5}]}
    with (
        record_calls() as calls,
        TestClient(create_app(Service(model, database)), base_url="http://localhost") as client,
    ):
        calls.clear()  # those of the start
        assert client.patch(url, json=body).status_code == 200
    check_path("write", calls)
