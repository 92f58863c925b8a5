"""Requests: the same options in Python, in the service and on the command line; bad ones are
refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from typer.main import get_command

from deepmf.batch import Scorer
from deepmf.cli.app import app
from deepmf.datasets import generate
from deepmf.errors import BadSetting
from deepmf.models.als import ALS
from deepmf.recommend import Order, Request
from deepmf.recommend.request import OrderOptions, RequestOptions, ServedOptions, list_options
from deepmf.serve.schemas import RecommendRequest

RATINGS = generate(60, 40, density=0.3, seed=0).matrix


@pytest.fixture(scope="module")
def model() -> ALS:
    return ALS(latent_size=4, epochs=2, seed=0).fit(RATINGS)


def list_flags(command: str) -> set[str]:
    return {flag for option in get_command(app).commands[command].params for flag in option.opts}  # type: ignore[attr-defined]


def test_an_option_has_one_name_everywhere() -> None:
    assert {"n", *RequestOptions.__annotations__} == {field.name for field in fields(Request)}
    assert OrderOptions.__annotations__.keys() == {field.name for field in fields(Order)}
    assert {"n", *ServedOptions.__annotations__} <= RecommendRequest.model_fields.keys()
    for command, group in (("recommend", Request), ("evaluate", Order), ("compare", Order)):
        flags = {f"--{option.name.replace('_', '-')}" for option in list_options(group)}
        assert len(flags) >= 2 and flags <= list_flags(command)


def test_a_default_is_one_everywhere() -> None:
    asked = RecommendRequest.model_validate({"row": "ann"})
    for option in list_options(Request):
        assert getattr(asked, option.name) == option.default == getattr(Request(), option.name)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"rank_by": "x"}, "rank_by"),
        ({"device": "gpu"}, "device"),
        ({"relevant": True}, "relevant"),
        ({"relevant": np.inf}, "relevant"),
        ({"relevant": "4"}, "relevant"),
        ({"n": 0}, "^n "),
        ({"min_entries": -1}, "min_entries"),
        ({"popularity": -0.1}, "popularity"),
        ({"popularity": "x"}, "popularity"),
        ({"popularity": 0.5, "rank_by": "value"}, "popularity"),
        ({"popularity": np.float64(9)}, "got 9.0$"),
        ({"min_entries": np.int64(-3)}, "got -3$"),
        ({"relevant": 10**400}, "relevant"),
        ({"rank_by": np.array(["value", "next"])}, "rank_by"),
        ({"device": np.array(["cpu", "cuda"])}, "device"),
        ({"include_observed": np.array([True, False])}, "include_observed"),
        ({"include_observed": "yes"}, "include_observed"),
        ({"balance": []}, "balance"),
        ({"at": np.array([])}, "at must"),
        ({"at": [1, 2]}, "at must"),
        ({"where": np.array([1, 2])}, "where"),
        ({"where": {3: 4}}, "where"),
    ],
)
def test_bad_options(options: dict[str, Any], word: str) -> None:
    with pytest.raises(BadSetting, match=word):
        Request(**options)


def test_every_ranking_takes_every_option(model: ALS, tmp_path: Path) -> None:
    row = RATINGS.row_labels[0]
    best = model.recommend(row, 5)
    assert model.recommend(row, 5, device="cpu").labels.tolist() == best.labels.tolist()
    dated = ALS(latent_size=4, epochs=2, seed=0, times="auto")
    rows, columns, values = RATINGS.entries()
    times = 10**9 + (86400 * 100 * values).astype(int)  # values rise with time
    dated.fit(type(RATINGS).from_entries(rows, columns, values, RATINGS.scale, times=times))
    early = dated.recommend(row, 5, at=10**9)
    assert early.values.tolist() != dated.recommend(row, 5).values.tolist()
    dated.recommend_to(tmp_path / "top.csv", row, 5, at=10**9)
    np.testing.assert_allclose(polars.read_csv(tmp_path / "top.csv")["prediction"], early.values)
    dated.save(tmp_path / "model.safetensors")
    found = Scorer(tmp_path / "model.safetensors", n=5, at=10**9)({"row": np.array([row])})
    np.testing.assert_allclose(found["prediction"], early.values)


def test_arguments_of_predictions_are_no_arrays(model: ALS) -> None:
    wrong: Any = np.array(["rmse", "mae"])
    row, column = RATINGS.row_labels[0], RATINGS.column_labels[0]
    with pytest.raises(BadSetting, match="metric"):
        model.predict_levels([row], [column], metric=wrong)
    with pytest.raises(BadSetting, match="unknown"):
        model.predict([row], [column], unknown=wrong)
    with pytest.raises(BadSetting, match="ordered"):
        model.fold_in([column], [5], ordered=wrong)


def test_popularity_needs_relevance(model: ALS) -> None:
    with pytest.raises(BadSetting, match="popularity"):
        ALS(latent_size=4, epochs=1, presence=None).fit(RATINGS).recommend(
            RATINGS.row_labels[0], popularity=0
        )
