"""Conditions on column features: the best columns of those that meet them, however few."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf.cli.app import main
from deepmf.datasets import generate
from deepmf.errors import BadFeatures, BadSetting
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model

GENRES = ["Drama", "Comedy", "War"]


@pytest.fixture(scope="module")
def ratings() -> ObservedMatrix:
    return generate(60, 90, density=0.3, seed=0).matrix


@pytest.fixture(scope="module")
def films(ratings: ObservedMatrix) -> dict[str, list[Any]]:
    """The features of the columns; every tenth column misses each of them."""
    dice, n_columns = np.random.default_rng(0), ratings.shape[1]
    kinds: list[Any] = [
        tuple(genre for genre in GENRES if dice.random() < 0.5) for _ in range(n_columns)
    ]
    years: list[Any] = [1950.0 + number for number in range(n_columns)]
    dates: list[Any] = [
        datetime.date(1990, 1, 1) + datetime.timedelta(days=40 * number)
        for number in range(n_columns)
    ]
    countries: list[Any] = [["France", "Japan"][number % 2] for number in range(n_columns)]
    found = {"genres": kinds, "year": years, "released": dates, "country": countries}
    for place, values in enumerate(found.values()):
        values[place::10] = [None] * len(values[place::10])
    return found


@pytest.fixture(scope="module")
def model(ratings: ObservedMatrix, films: dict[str, list[Any]]) -> Model:
    features = Features.from_columns(
        ratings.column_labels.tolist(),
        films,
        kinds={"genres": "list", "year": "number", "released": "date", "country": "category"},
    )
    return ALS(latent_size=3, epochs=3, seed=0).fit(ratings, column_features=features)


def list_matching(model: Model, films: dict[str, list[Any]], test: Any) -> list[Any]:
    names = list(films)
    return [
        label
        for label, *values in zip(model.column_labels_.tolist(), *films.values(), strict=True)
        if test(dict(zip(names, values, strict=True)))
    ]


CASES: list[tuple[dict[str, Any], Any]] = [
    ({"year": {"min": 1990}}, lambda film: film["year"] is not None and film["year"] >= 1990),
    (
        {"year": {"min": 1960, "max": 1970}},
        lambda film: film["year"] is not None and 1960 <= film["year"] <= 1970,
    ),
    ({"year": 1977}, lambda film: film["year"] == 1977),
    (
        {"genres": {"any": ["Drama", "War"]}},
        lambda film: {"Drama", "War"} & set(film["genres"] or ()),
    ),
    (
        {"genres": {"all": ["Drama", "War"]}},
        lambda film: {"Drama", "War"} <= set(film["genres"] or ()),
    ),
    (
        {"genres": {"none": ["War"]}},
        lambda film: film["genres"] is not None and "War" not in film["genres"],
    ),
    ({"genres": "Comedy"}, lambda film: "Comedy" in (film["genres"] or ())),
    (
        {"genres": {"any": ["Drama"], "none": ["War"]}, "country": ["Japan"]},
        lambda film: (
            "Drama" in (film["genres"] or ())
            and "War" not in (film["genres"] or ())
            and film["country"] == "Japan"
        ),
    ),
    (
        {"released": {"min": 1995}},
        lambda film: film["released"] is not None and film["released"].year >= 1995,
    ),
    (
        {"released": {"min": "1992-03-21", "max": "1993-02-04"}},
        lambda film: (
            film["released"] is not None
            and datetime.date(1992, 3, 21) <= film["released"] <= datetime.date(1993, 2, 4)
        ),
    ),
]


@pytest.mark.parametrize(("where", "test"), CASES, ids=[str(where) for where, _ in CASES])
def test_ranking_is_that_among_the_matching_columns(
    model: Model, films: dict[str, list[Any]], where: dict[str, Any], test: Any
) -> None:
    matching = list_matching(model, films, test)
    assert 0 < len(matching) < 90
    rows = model.row_labels_[:5].tolist()
    found, wanted = (
        model.recommend(rows, 12, where=where),
        model.recommend(rows, 12, among=matching),
    )
    is_there = ~np.isnan(wanted.values)
    np.testing.assert_array_equal(np.isnan(found.values), ~is_there)
    assert found.labels[is_there].tolist() == wanted.labels[is_there].tolist()
    excluded = matching[:2]
    both = model.recommend(rows[0], 5, where=where, exclude=excluded, min_entries=2)
    assert set(both.labels.tolist()) <= set(matching) - set(excluded)


def test_features_that_came_later_count(model: Model) -> None:
    features = Features.from_columns(["New", "Old"], {"year": [2060.0, 1920.0]})
    new = ObservedMatrix.from_entries(
        [model.row_labels_[0]] * 2, ["New", "Plain"], [3, 3], model.scale_
    )
    later = model.extend(new, column_features=features)
    row = model.row_labels_[1]
    assert later.recommend(row, 5, where={"year": {"min": 2045}}).labels.tolist() == ["New"]
    assert later.recommend(row, 5, where={"year": {"max": 1930}}).labels.tolist() == ["Old"]
    changed = later.extend(None, column_features=Features.from_columns(["Old"], {"year": [2061.0]}))
    assert set(changed.recommend(row, 5, where={"year": {"min": 2045}}).labels.tolist()) == {
        "New",
        "Old",
    }
    folded = changed.fold_in([model.column_labels_[0]], [4])
    assert set(folded.recommend(5, where={"year": {"min": 2045}}).labels.tolist()) == {"New", "Old"}


@pytest.mark.parametrize(
    ("where", "error", "word"),
    [
        ({"colour": "red"}, BadFeatures, "colour"),
        ({"genres": {"any": ["Dram"]}}, BadSetting, "Drama"),
        ({"genres": {"min": 3}}, BadSetting, "min"),
        ({"genres": {"any": []}}, BadSetting, "genres"),
        ({"year": {"any": [3]}}, BadSetting, "any"),
        ({"year": {"min": "old"}}, BadSetting, "old"),
        ({"year": 10**400}, BadSetting, "limit of year"),
        ({"year": {}}, BadSetting, "year"),
        ({"released": {"min": "soon"}}, BadSetting, "soon"),
        ({"released": {"max": float("inf")}}, BadSetting, "inf"),
        ({"released": {"min": "NaT"}}, BadSetting, "NaT"),
        ("genres=Drama", BadSetting, "dict"),
    ],
)
def test_wrong_conditions_are_refused(
    model: Model, where: Any, error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        model.recommend(model.row_labels_[0], where=where)


def test_model_without_features_says_so(ratings: ObservedMatrix) -> None:
    plain = ALS(latent_size=2, epochs=1, seed=0).fit(ratings)
    with pytest.raises(BadSetting, match="column"):
        plain.recommend(ratings.row_labels[0], where={"year": {"min": 3}})


def test_command_line_takes_conditions(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.save(tmp_path / "model.safetensors")
    row = model.row_labels_[0]
    command = ["recommend", str(tmp_path / "model.safetensors"), "--row", str(row), "-n", "5"]

    def recommend(*conditions: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ending:
            main([*command, *(word for condition in conditions for word in ("--where", condition))])
        return int(ending.value.code or 0), "".join(capsys.readouterr())

    code, shown = recommend("year>=1960", "year<=1975", "genres=Drama|Comedy", "genres!=War")
    assert code == 0
    where = {
        "year": {"min": 1960, "max": 1975},
        "genres": {"any": ["Drama", "Comedy"], "none": ["War"]},
    }
    best = model.recommend(row, 5, where=where).labels.tolist()
    assert all(str(film) in shown for film in best)
    for wrong in ("year", "year!=3", "colour=red", "year>=old"):
        code, shown = recommend(wrong)
        assert code == 2
        assert shown.count("\n") == 1
