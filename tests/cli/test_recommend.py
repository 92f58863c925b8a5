"""`deepmf recommend`: the library's ranking, for known rows and for new ones."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars
import pytest

from deepmf.data import AreaSplit
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.loading import load


def test_the_best_columns(run: Any, folder: Path, split: AreaSplit) -> None:
    model = folder / "means.safetensors"
    new = next(row for row in split.extension.entries().rows if row not in split.train.rows)
    arguments = ["recommend", model, "--row", new, "-n", 4, "--extend", folder / "new.csv"]
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    best = load(model).extend(split.extension).recommend(new, n=4)
    shown = json.loads(out)
    assert shown["row"] == new
    assert [line["column"] for line in shown["best"]] == best.labels.tolist()
    assert [line["prediction"] for line in shown["best"]] == pytest.approx(best.values.tolist())
    shown = run(*arguments).out
    assert all(column in shown for column in best.labels)
    assert shown.splitlines()[1].split()[1::2] == ["film", "prediction", "presence", "liked"]


def test_both_orders_and_their_probabilities(run: Any, folder: Path, split: AreaSplit) -> None:
    path, row = folder / "means.safetensors", split.train.row_labels[0]
    arguments = ["recommend", path, "--row", row, "-n", 5, "--json"]
    for order in ("relevance", "value"):
        best = load(path).recommend(row, n=5, rank_by=order, relevant=4)
        shown = json.loads(run(*arguments, "--rank-by", order, "--relevant", 4).out)["best"]
        assert [line["column"] for line in shown] == best.labels.tolist()
        assert best.presence is not None and best.liked is not None
        assert [line["presence"] for line in shown] == pytest.approx(best.presence.tolist())
        assert [line["liked"] for line in shown] == pytest.approx(best.liked.tolist())
    for wrong in (["--rank-by", "x"], ["--relevant", 9]):
        assert str(wrong[1]) in run.fails(*arguments, *wrong)


def test_what_comes_next(run: Any, folder: Path, split: AreaSplit, tmp_path: Path) -> None:
    table = tmp_path / "plays.csv"
    lines = [f"r{row},c{(row + at) % 9},2024-01-0{at + 1}" for row in range(60) for at in range(5)]
    table.write_text("\n".join(["row,column,date", *lines]))
    model = tmp_path / "plays.safetensors"
    assert run("fit", table, "-o", model, "--model", "means", "--time", "date", "--json").code == 0
    for given in ([], ["--rank-by", "next"]):
        best = json.loads(run("recommend", model, "--row", "r0", "-n", 1, "--json", *given).out)[
            "best"
        ]
        assert [line["column"] for line in best] == ["c5"]
    known = ["recommend", model, "--row", "r0", "-n", 9, "--rank-by", "next", "--json"]
    n_listed = [
        len(json.loads(run(*known, *given).out)["best"]) for given in ([], ["--include-observed"])
    ]
    assert n_listed == [4, 9]
    row = split.train.row_labels[0]
    assert "order" in run.fails(
        "recommend", folder / "means.safetensors", "--row", row, "--rank-by", "next"
    )


@pytest.fixture
def films(split: AreaSplit) -> list[str]:
    """Three films that the model knows."""
    titles: list[str] = split.train.column_labels[[3, 1, 2]].tolist()
    return titles


@pytest.mark.parametrize(
    "lines",
    [
        ["{0},5", "{1},1", "{2},4"],
        ["stars\ttitle\twhen", "5\t{0}\t2020", "1\t{1}\t2021", "4\t{2}\t2022"],
        ["\ufefftitle,stars\r", "{0}, 5\r", "{1}, 1\r", '"{2}", 4\r', ""],
    ],
)
def test_a_history_describes_a_new_row(
    run: Any, folder: Path, tmp_path: Path, split: AreaSplit, films: list[str], lines: list[str]
) -> None:
    history = tmp_path / "me.csv"
    history.write_text("\n".join(lines).format(*films) + "\n", newline="")
    model = folder / "means.safetensors"
    before = model.read_bytes()
    code, out, err = run("recommend", model, "--history", history, "-n", 4, "--json")
    assert (code, err) == (0, "")
    entries = ObservedMatrix.from_entries(["me"] * 3, films, [5, 1, 4], split.train.scale)
    best = load(model).extend(entries).recommend("me", n=4)
    shown = json.loads(out)
    assert (
        shown["row"] is None and [line["column"] for line in shown["best"]] == best.labels.tolist()
    )
    assert [line["prediction"] for line in shown["best"]] == pytest.approx(best.values.tolist())
    assert not set(best.labels) & set(films)
    assert model.read_bytes() == before


def test_a_history_from_standard_input(
    run: Any, folder: Path, films: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for content in (
        f"{films[0]},5\nNobody's film,2\n",
        "No,3\n",
        f"{films[0]},6\n",
        f"{films[0]},1\n{films[0]},2\n",
    ):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))
        code, out, err = run("recommend", folder / "means.safetensors", "--history", "-")
        assert err.count("\n") == 1
        if "Nobody" in content:
            assert (code, "prediction" in out) == (0, True)
            said = 'does not know 1 of the columns, which are left out: "Nobody\'s film"'
            assert err == f"deepmf: warning: standard input: the model {said}\n"
        else:
            assert (code, out) == (2, "")
            said = {
                "N": "knows none of the 1 columns: 'No'",
                "6": "has value 6; the scale is 1 to 5",
                "2": "given twice",
            }
            assert said["N" if content[0] == "N" else content[-2]] in err


@pytest.mark.parametrize(
    "lines",
    [
        ["film", "{0}", "", "{1}", "{2}", "{1}"],
        ["user,item,rating", "me,{0},5", "me,{1},2", 'me,"{2}",1'],
    ],
)
def test_a_choice_of_columns(
    run: Any, folder: Path, tmp_path: Path, films: list[str], lines: list[str]
) -> None:
    model, chosen = folder / "means.safetensors", tmp_path / "films.csv"
    chosen.write_text("\n".join(lines).format(*films) + "\n", newline="")
    row = load(model).row_labels_[0]
    arguments = ["recommend", model, "--row", row, "-n", 1000, "--include-observed", "--json"]

    def shown(*options: object) -> set[str]:
        code, out, err = run(*arguments, *options)
        assert (code, err) == (0, "")
        return {line["column"] for line in json.loads(out)["best"]}

    assert shown("--among", chosen) == set(films)
    assert shown("--exclude", chosen) == set(load(model).column_labels_) - set(films)
    assert shown("--among", chosen, "--exclude", chosen) == set()
    with chosen.open("a") as file:
        file.write("Nobody's film\n" if len(lines) > 4 else "Nobody,Nobody's film,1\n")
    assert f'{chosen}: column "Nobody\'s film"' in run.fails(*arguments[:-1], "--among", chosen)


def test_all_rows_and_some_rows_in_a_file(run: Any, folder: Path, tmp_path: Path) -> None:
    model, top = folder / "means.safetensors", tmp_path / "top.csv"
    fitted = load(model)
    code, out, err = run("recommend", model, "--all", "-n", 3, "-o", top)
    n_rows = len(fitted.row_labels_)
    assert (code, err) == (0, "")
    assert out == f"{3 * n_rows} recommendations for {n_rows} rows in {top}\n"
    frame = polars.read_csv(top)
    # ids as in the entries' file
    assert frame.columns == ["user", "rank", "film", "prediction", "presence", "liked"]
    for row in fitted.row_labels_[:2]:
        assert (
            frame.filter(polars.col("user") == row)["film"].to_list()
            == fitted.recommend(row, n=3).labels.tolist()
        )
    some = fitted.row_labels_[[4, 1]].tolist()
    (tmp_path / "rows.csv").write_text(f"user,age\n{some[0]},7\n{some[1]},8\n{some[0]},7\n")
    asked = ["recommend", model, "--rows", tmp_path / "rows.csv", "-n", 2, "-o"]
    shown = run.json(*asked, tmp_path / "some.parquet")
    assert shown == {"rows": 2, "recommendations": 4, "file": str(tmp_path / "some.parquet")}
    assert (
        polars.read_parquet(tmp_path / "some.parquet")["user"].to_list()
        == [some[0]] * 2 + [some[1]] * 2
    )


def test_bad_input_about_many_rows_is_one_line(run: Any, folder: Path, tmp_path: Path) -> None:
    model, top = folder / "means.safetensors", tmp_path / "top.csv"
    row = load(model).row_labels_[0]
    (tmp_path / "rows.txt").write_text(f"{row}\nNobody\n")
    for arguments, said in (
        ([], "give one of --row ID"),
        (["--all", "--row", row], "give one of --row ID"),
        (["--all"], "--all need -o FILE"),
        (["--rows", tmp_path / "rows.txt"], "--rows and --all need -o FILE"),
        (["--rows", tmp_path / "rows.txt", "-o", top], "rows.txt: row 'Nobody'"),
        (["--history", tmp_path / "rows.txt", "-o", top], "-o is for known rows"),
        (["--all", "-o", tmp_path / "top.xlsx"], "must end in .csv, .tsv, .jsonl, .parquet"),
        (["--rows", tmp_path / "absent.txt", "-o", top], "absent.txt"),
    ):
        assert said in run.fails("recommend", model, *arguments)
    assert not top.exists()


@pytest.fixture(scope="module")
def model(split: AreaSplit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("similar") / "als.safetensors"
    ALS(latent_size=2, epochs=1).fit(split.train).save(path)
    return path


@pytest.mark.parametrize("axis", ["row", "column"])
def test_the_most_similar(run: Any, model: Path, axis: str) -> None:
    fitted = load(model)
    labels = fitted.row_labels_ if axis == "row" else fitted.column_labels_
    label = labels[0]
    found = fitted.similar_rows(label, 3) if axis == "row" else fitted.similar_columns(label, 3)
    arguments = ["similar", model, f"--{axis}", label, "-n", 3]
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown[axis] == label
    assert [line[axis] for line in shown["similar"]] == found.labels.tolist()
    assert [line["cosine"] for line in shown["similar"]] == pytest.approx(found.values.tolist())
    text = run(*arguments).out
    assert all(other in text for other in found.labels)
    assert len(run.json("similar", model, f"--{axis}", label)["similar"]) == 10
