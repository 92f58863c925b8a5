"""`deepmf reproduce`: a table from data to picture, kept as it grows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_a_table_is_shown_and_written(run: Any, recipes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, shown, err = run("reproduce", "small", "-o", out)
    assert (code, err) == (0, "")
    assert (
        "A small table" in shown
        and "shrunk means" in shown
        and "(0.900," in shown
        and "remark" in shown
    )
    names = {path.name for path in (out / "small").iterdir()}
    assert {"results.jsonl", "table.md", "areas.svg", "quantizer.svg"} <= names
    text = (out / "small" / "table.md").read_text()
    assert (
        text.startswith("# A small table\n\n| method | new |")
        and "- remark" in text
        and "QUICK" not in text
    )
    assert len((out / "small" / "results.jsonl").read_text().splitlines()) == 18


@pytest.mark.slow
def test_rows_splits_and_json(run: Any, recipes: Path, tmp_path: Path) -> None:
    arguments = f"reproduce small --only dmf-d --splits 1 -o {tmp_path}/out --no-pictures".split()
    code, shown, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(shown)
    assert [record["recipe"] for record in answer["records"]] == ["small/dmf-d"] and answer[
        "quick"
    ] is False
    assert {path.name for path in (tmp_path / "out" / "small").iterdir()} == {
        "results.jsonl",
        "table.md",
    }


@pytest.mark.slow
def test_quick_is_marked_and_kept_apart(
    run: Any, recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, shown, err = run("reproduce", "small", "--quick", "--only", "dmf-d", "--no-pictures")
    assert (code, err) == (0, "")
    assert "A QUICK RUN" in shown and "not the result" in shown
    assert "A QUICK RUN" in (tmp_path / "reproduced-quick" / "small" / "table.md").read_text()
    record = json.loads(
        (tmp_path / "reproduced-quick" / "small" / "results.jsonl").read_text().splitlines()[0]
    )
    assert (record["data"], record["epochs"]) == ("generated", 2)
    assert not (tmp_path / "reproduced").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["smal"], "'smal'; did you mean 'small'"),
        (["small", "--only", "dmfd"], "'dmfd'; did you mean 'dmf-d'"),
        (["small", "--splits", "0"], "splits must be a whole number of at least 1"),
        (["small", "--jobs", "0"], "at least 1; got 0"),
    ],
)
def test_bad_input_is_one_line(
    run: Any, recipes: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, shown, err = run("reproduce", *arguments, "-o", tmp_path / "out")
    assert (code, shown) == (2, "")
    assert message in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_quick_results_are_never_shown_as_the_result(
    run: Any, recipes: Path, tmp_path: Path
) -> None:
    path = recipes / "small" / "1-means.toml"
    path.write_text(path.read_text().replace('"generated"', '"ml-1m"'))
    arguments = ["reproduce", "small", "--only", "means", "-o", tmp_path / "out", "--no-pictures"]
    assert "A QUICK RUN" in run(*arguments, "--quick").out
    assert "A QUICK RUN" in run(*arguments, "--from-results").out


@pytest.mark.slow
def test_tables_and_pictures_of_results_that_ran_elsewhere(
    run: Any, recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert run("reproduce", "small", "--only", "means", "-o", out, "--no-pictures").code == 0
    monkeypatch.setenv("DEEPMF_COMMIT", "def")
    before = (out / "small" / "results.jsonl").read_text()
    code, shown, err = run("reproduce", "small", "--from-results", "-o", out)
    assert (code, err) == (0, "") and "shrunk means" in shown and "DMF-D" not in shown
    assert (out / "small" / "areas.svg").exists() and (
        out / "small" / "results.jsonl"
    ).read_text() == before
    err = run.fails("reproduce", "small", "--from-results", "-o", tmp_path / "nothing")
    assert "no results of small" in err and not (tmp_path / "nothing").exists()


@pytest.mark.slow
def test_the_device_is_that_of_the_networks(run: Any, recipes: Path, tmp_path: Path) -> None:
    arguments = ["reproduce", "small", "--splits", 1, "-o", tmp_path / "out", "--no-pictures"]
    answer = run.json(*arguments, "--device", "auto")
    devices = {record["recipe"]: record["settings"].get("device") for record in answer["records"]}
    assert devices == {"small/means": None, "small/dmf-d": "auto"}
    assert re.search("dmf-d .*device", run.fails(*arguments, "--device", "cpu"))
    assert re.match("deepmf: device .*got 'gpu'\n", run.fails(*arguments, "--device", "gpu"))


def test_a_folder_that_cannot_be_is_refused_before_the_first_fit(
    run: Any, recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepmf.models.means.Means.fit", lambda *_, **__: pytest.fail("it trained"))
    (tmp_path / "file").write_text("old")
    code, shown, err = run("reproduce", "small", "-o", tmp_path / "file")
    assert (code, shown, err.count("\n")) == (2, "", 1) and "Not a directory" in err
