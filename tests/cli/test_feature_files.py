"""Features on the command line: files, ids, kinds, new rows, and one line for every mistake."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from deepmf.cli.feature_files import parse_named_values
from deepmf.data import AreaSplit
from deepmf.errors import BadSetting
from deepmf.matrix.features import Features
from deepmf.models.loading import load
from deepmf.models.means import Means

JOBS, GENRES = ["cook", "nurse", "clerk"], ["Horror", "Comedy", "Horror|Drama"]


@pytest.fixture(scope="module")
def people(split: AreaSplit) -> pl.DataFrame:
    """Features of all rows, those that are new too."""
    names = sorted({*split.train.row_labels.tolist(), *split.extension.row_labels.tolist()})
    dice = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "age": dice.integers(18, 80, size=len(names)),
            "user": names,
            "job": dice.choice(JOBS, size=len(names)),
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, split: AreaSplit, people: pl.DataFrame) -> Path:
    """A folder with people.csv, films.parquet, new.csv of new people, and a model fitted with the
    first two."""
    folder = tmp_path_factory.mktemp("features")
    known = people.filter(pl.col("user").is_in(split.train.row_labels.tolist()))
    known.write_csv(folder / "people.csv")
    people.filter(~pl.col("user").is_in(known["user"].to_list())).write_csv(folder / "new.csv")
    titles = split.train.column_labels.tolist()
    films = pl.DataFrame({"title": titles, "genres": [GENRES[at % 3] for at in range(len(titles))]})
    films.write_parquet(folder / "films.parquet")
    return folder


@pytest.fixture(scope="module")
def model(files: Path, folder: Path, split: AreaSplit) -> Path:
    from deepmf.cli.app import main

    path = files / "means.safetensors"
    arguments = f"fit {folder}/train.csv -o {path} --model means --validation-share 0".split()
    arguments += (
        f"--row-features {files}/people.csv --column-features {files}/films.parquet"
    ).split()
    with pytest.raises(SystemExit):
        main(list(map(str, arguments)))
    return path


def test_fit_reads_what_the_library_reads(
    run: Any,
    files: Path,
    folder: Path,
    split: AreaSplit,
    model: Path,
    tmp_path: Path,
    people: pl.DataFrame,
) -> None:
    fitted = load(model)
    expected = Means().fit(
        split.train,
        row_features=Features.from_frame(pl.read_csv(files / "people.csv"), "user"),
        column_features=Features.from_frame(pl.read_parquet(files / "films.parquet"), "title"),
    )
    rows, columns = (
        expected.row_labels_,
        expected.column_labels_[:1].repeat(len(expected.row_labels_)),
    )
    np.testing.assert_allclose(fitted.predict(rows, columns), expected.predict(rows, columns))
    arguments = f"fit {folder}/train.csv -o {tmp_path}/m --model als --set epochs=2".split()
    arguments += (
        f"--row-features {files}/people.csv --feature-kinds age=category,job=list"
    ).split()
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert "features of rows: age (category), job (list)" in out
    shown = run.json(*arguments)
    assert shown["features"] == {"rows": {"age": "category", "job": "list"}}


def test_a_guessed_id_is_told(run: Any, files: Path, folder: Path, tmp_path: Path) -> None:
    films = files / "films.parquet"
    arguments = (
        f"fit {folder}/train.csv -o {tmp_path}/m --model means --column-features {films}"
    ).split()
    code, _, err = run(*arguments)
    assert code == 0 and re.match(f"deepmf: {films}: 'title' .*--feature-label", err)
    assert run(*arguments, "--feature-label", "title").err == ""


def test_rows_with_features_alone_are_known(
    run: Any, files: Path, model: Path, tmp_path: Path
) -> None:
    new = files / "new.csv"
    name = pl.read_csv(new)["user"][0]
    assert run("recommend", model, "--row", name).code == 2
    code, out, err = run(
        "recommend", model, "--row", name, "--row-features", new, "--json", "-n", 3
    )
    assert (code, err) == (0, "")
    more = load(model).extend(row_features=Features.from_frame(pl.read_csv(new), "user"))
    best = more.recommend(name, 3)
    assert [line["column"] for line in json.loads(out)["best"]] == best.labels.tolist()
    film = more.column_labels_[0]
    (tmp_path / "pairs.csv").write_text(f"user,film\n{name},{film}\n")
    found = run("predict", model, tmp_path / "pairs.csv", "--row-features", new, "--json")
    assert (found.code, found.err) == (0, "")
    line = json.loads(found.out)
    assert (line["area"], line["prediction"]) == (
        "II",
        pytest.approx(more.predict([name], [film])[0]),
    )


def test_a_new_row_by_features(run: Any, model: Path, split: AreaSplit, tmp_path: Path) -> None:
    fitted, films = load(model), split.train.column_labels.tolist()
    (tmp_path / "me.csv").write_text(f"film,stars\n{films[0]},5\n")
    alone = run("recommend", model, "--features", "age=25,job=cook", "-n", 2, "--json")
    assert (alone.code, alone.err) == (0, "")
    guest = fitted.fold_in(features={"age": 25, "job": "cook"})
    assert [line["column"] for line in json.loads(alone.out)["best"]] == guest.recommend(
        2
    ).labels.tolist()
    arguments = f"explain {model} --history {tmp_path}/me.csv --features age=25,job=cook".split()
    both = run(*arguments, "--column", films[3], "--json")
    assert (both.code, both.err) == (0, "")
    found = fitted.fold_in(films[:1], [5], features={"age": 25, "job": "cook"}).explain(films[3])
    shown = json.loads(both.out)
    assert shown["prediction"] == pytest.approx(found.prediction)
    assert [(line["name"], line["value"]) for line in shown["features"]] == [
        each[:2] for each in found.features
    ]
    text = run(*arguments, "--column", films[3]).out
    assert "features of the row" in text and all(each.value in text for each in found.features)


def test_similarities_come_in_tables_with_a_column_for_each_known_row(
    run: Any, files: Path, folder: Path, split: AreaSplit, tmp_path: Path
) -> None:
    names = split.train.row_labels.tolist()
    places = np.random.default_rng(0).normal(size=(len(names) + 1, 2))
    similar = np.exp(-np.square(places[:, None] - places[:-1]).sum(axis=2))
    table = pl.DataFrame({"user": [*names, "Zoe"]} | dict(zip(names, similar.T, strict=True)))
    known, new = tmp_path / "known.csv", tmp_path / "new.csv"
    table[:-1].sample(fraction=1.0, shuffle=True, seed=0).write_csv(known)
    table[-1:].write_csv(new)
    path = tmp_path / "m"
    arguments = f"fit {folder}/train.csv -o {path} --model means --row-similarity {known}".split()
    arguments += f"--row-features {files}/people.csv --validation-share 0".split()
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert "similarity (similarity)" in out and "age (number)" in out
    model = load(path)
    (expected,) = model.extend(
        row_features=Features.from_similarity(["Zoe"], similar[-1:], to=names)
    ).predict(["Zoe"], split.train.column_labels[:1])
    (tmp_path / "pairs.csv").write_text(f"user,film\nZoe,{split.train.column_labels[0]}\n")
    found = run("predict", path, tmp_path / "pairs.csv", "--row-similarity", new, "--json")
    assert json.loads(found.out)["prediction"] == pytest.approx(expected)
    pl.DataFrame({"user": ["Zoe"], "nobody": [1.0]}).write_csv(new)
    err = run.fails("predict", path, tmp_path / "pairs.csv", "--row-similarity", new)
    assert str(new) in err and "does not know" in err


@pytest.mark.parametrize(
    "text, options, said",
    [
        ("user,age\nnobody,1\nno one,2\n", [], "no label of the row features"),
        ("user,age\n{0},1\n{1},2\n", ["--feature-label", "id"], "--feature-label id: "),
        (
            "user,age\n{0},1\n{1},2\n",
            ["--feature-kinds", "height=number"],
            "--feature-kinds height: ",
        ),
        (
            "user,age\n{0},1\n{1},2\n",
            ["--feature-kinds", "age"],
            "--feature-kinds takes name=value,name=value",
        ),
        ("user,age\n{0},1\n{1},2\n", ["--model", "u-autorec"], "UAutoRec reads entries alone"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(
    run: Any,
    folder: Path,
    split: AreaSplit,
    tmp_path: Path,
    text: str,
    options: list[str],
    said: str,
) -> None:
    people = tmp_path / "people.csv"
    people.write_text(text.format(*split.train.row_labels[:2]))
    arguments = ["fit", folder / "train.csv", "-o", tmp_path / "m", "--row-features", people]
    arguments += options if "--model" in options else ["--model", "means", *options]
    err = run.fails(*arguments)
    assert said in err
    assert "--feature-kinds takes" in said or "UAutoRec" in said or str(people) in err
    assert not (tmp_path / "m").exists()


def test_mistakes_with_a_model(
    run: Any, files: Path, folder: Path, model: Path, tmp_path: Path
) -> None:
    plain, new = folder / "means.safetensors", files / "new.csv"
    target = ["--all", "-o", tmp_path / "x.csv"]
    for arguments, said in (
        (["recommend", plain, *target, "--row-features", new], "fit it with --row-features"),
        (["recommend", plain, "--features", "age=3"], "without row features"),
        (["recommend", model, "--features", "age=old"], "'age' cannot be read as numbers"),
        (["recommend", model, "--features", "age"], "such as age=25; got 'age'"),
        (
            ["recommend", model, *target, "--feature-label", "x"],
            "--feature-label needs --row-features",
        ),
    ):
        assert said in run.fails(*arguments)
        assert not (tmp_path / "x.csv").exists()


def test_parse_named_values() -> None:
    assert parse_named_values("--features", " age = 25 ,city=Paris, Texas") == {
        "age": "25",
        "city": "Paris, Texas",
    }
    assert parse_named_values("--features", "formula=a=b") == {"formula": "a=b"}
    assert parse_named_values("--features", "age=") == {"age": ""}
    for wrong in ("", "=3"):
        with pytest.raises(BadSetting, match="name=value"):
            parse_named_values("--features", wrong)
