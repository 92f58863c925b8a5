"""`deepmf import`: files arrive whole, refused entries are named, and sending again changes
nothing."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars
import pytest
from tests.cli.conftest import Run
from tests.conftest import StartService

from deepmf.client import Client
from deepmf.data import AreaSplit
from deepmf.models.means import Means

pytestmark = pytest.mark.filterwarnings("ignore::deepmf.errors.NothingObserved")


@pytest.fixture
def url(start_service: StartService, split: AreaSplit) -> str:
    return start_service(Means().fit(split.train))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_file_arrives_whole(
    run: Run, folder: Path, tmp_path: Path, url: str, split: AreaSplit, ending: str
) -> None:
    frame, file = polars.read_csv(folder / "new.csv"), tmp_path / f"new.{ending}"
    {"csv": frame.write_csv, "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[ending](
        file
    )
    outcome = run("import", file, "--url", url, "--batch", 50, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["changed"] == frame.height
    with Client(url) as client:
        known = {(one.row, one.column): one.value for one in client.export_entries()}
    assert known == {
        (row, column): value
        for part in (split.train, split.extension)
        for row, column, value in zip(*(array.tolist() for array in part.entries()), strict=True)
    }
    assert run.json("import", file, "--url", url)["changed"] == 0


def test_times_and_weights_are_sent(run: Run, tmp_path: Path, url: str) -> None:
    file = tmp_path / "ratings.csv"
    file.write_text("user,film,stars,timestamp,w\nann,Alien,5,2024-05-01,2\nann,Big,3,,1\n")
    outcome = run("import", file, "--url", url, "--weight", "w")
    assert "timestamp" in outcome.err
    with Client(url) as client:
        (alien, big) = client.iterate_row_entries("ann")
        assert (alien.time, alien.weight) == (datetime(2024, 5, 1, tzinfo=UTC), 2.0)
        assert (big.time, big.weight) == (None, 1.0)
        client.put_row_entries(
            "bob", {"Alien": {"value": 4, "time": datetime(2024, 5, 2, tzinfo=UTC), "weight": 0.5}}
        )
        client.write_entries(
            [("bob", "Big", {"value": 4, "time": "2024-05-03"}), ("cem", "Big", 2)]
        )
        found = [
            (one.column, one.time and one.time.day, one.weight)
            for one in client.iterate_row_entries("bob")
        ]
    assert found == [("Alien", 2, 0.5), ("Big", 3, 1.0)]


def test_refused_entries_are_named_by_their_line(run: Run, tmp_path: Path, url: str) -> None:
    file = tmp_path / "ratings.csv"
    file.write_text("user,film,stars\nann,Alien,5\nann,Big,3\nbob,Alien,11\nbob,Big,2\n")
    outcome = run("import", file, "--url", url, "--batch", 2)
    assert outcome.code == 2
    assert "line 4" in outcome.err
    assert "3 written" in outcome.out
    assert "1 refused" in outcome.out


def test_service_that_is_away_is_one_line(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepmf.client.time.sleep", lambda _: None)
    outcome = run("import", folder / "new.csv", "--url", "http://127.0.0.1:9")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
