"""The scorer of batches: every kind of batch, a fixed schema, and the results of the model
itself."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from deepmf.batch import Scorer
from deepmf.datasets import generate
from deepmf.errors import BadEntries, BadSetting, FileAbsent, UnknownLabel
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF


@pytest.fixture(scope="module")
def ratings() -> ObservedMatrix:
    return generate(30, 20, density=0.4, seed=0).matrix


@pytest.fixture(scope="module")
def model(ratings: ObservedMatrix) -> Model:
    return ALS(latent_size=3, epochs=4, seed=0).fit(ratings)


@pytest.fixture(scope="module")
def path(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "als.safetensors"
    model.save(path)
    return path


@pytest.fixture(scope="module")
def integers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with integer ids."""
    dice = np.random.default_rng(0)
    cells = dice.choice(20 * 15, 120, replace=False)
    matrix = ObservedMatrix.from_entries(
        100 + cells // 15, cells % 15, dice.integers(1, 6, 120).astype(float)
    )
    path = tmp_path_factory.mktemp("models") / "als.safetensors"
    ALS(latent_size=2, epochs=2, seed=0).fit(matrix).save(path)
    return path


def make_batch(kind: str, **columns: Any) -> Any:
    if kind == "numpy":
        return {
            name: np.array(values, dtype=object) if "history" in name else np.array(values)
            for name, values in columns.items()
        }
    table = pa.table(columns)
    return {"table": table, "record batch": table.to_batches()[0], "pandas": table.to_pandas()}[
        kind
    ]


def to_lists(result: Any) -> dict[str, list[Any]]:
    if isinstance(result, dict):
        return {name: values.tolist() for name, values in result.items()}
    frame = result if isinstance(result, pd.DataFrame) else result.to_pandas()
    return {name: frame[name].tolist() for name in frame.columns}


KINDS = pytest.mark.parametrize("kind", ["numpy", "table", "record batch", "pandas"])


@KINDS
def test_recommendations_are_those_of_the_model(
    kind: str, path: Path, model: Model, ratings: ObservedMatrix
) -> None:
    rows = ratings.row_labels[[4, 2, 9]].tolist()
    films = ratings.column_labels[:5].tolist()
    batch = make_batch(kind, row=rows)
    result = Scorer(path, n=3, exclude=films)(batch)
    assert type(result) is type(batch)
    found, best = to_lists(result), model.recommend(rows, 3, exclude=films)
    assert found["row"] == [row for row in rows for _ in range(3)]
    assert found["rank"] == [1, 2, 3] * 3
    assert found["column"] == best.labels.ravel().tolist()
    np.testing.assert_allclose(found["prediction"], best.values.ravel())
    assert best.presence is not None and best.liked is not None
    np.testing.assert_allclose(found["presence"], best.presence.ravel())
    np.testing.assert_allclose(found["liked"], best.liked.ravel())


@KINDS
def test_histories_are_folded_in_between_known_rows(
    kind: str, path: Path, model: Model, ratings: ObservedMatrix
) -> None:
    known, films = ratings.row_labels[3], ratings.column_labels[:3].tolist()
    columns, values = [[], films, [], films[:1]], [[], [5.0, 1.0, 4.0], [], [2.0]]
    batch = make_batch(
        kind, row=["a", "new", "b", "newer"], history_columns=columns, history_values=values
    )
    with pytest.raises(UnknownLabel, match="'a'"):
        Scorer(path)(batch)
    batch = make_batch(
        kind, row=[known, "new", known, "newer"], history_columns=columns, history_values=values
    )
    found = to_lists(Scorer(path, n=2)(batch))
    assert found["row"] == [known, known, "new", "new", known, known, "newer", "newer"]
    folded = model.fold_in(films, [5, 1, 4])
    assert found["column"][2:4] == folded.recommend(2).labels.tolist()
    pairs = make_batch(
        kind,
        row=[known, "new"],
        column=films[::2],
        history_columns=columns[:2],
        history_values=values[:2],
    )
    expected = [model.predict([known], films[:1])[0], folded.predict(films[2:])[0]]
    np.testing.assert_allclose(
        to_lists(Scorer(path, "predict")(pairs))["prediction"], expected, rtol=1e-6
    )


@KINDS
def test_complete_gives_every_missing_entry_once(
    kind: str, path: Path, model: Model, ratings: ObservedMatrix
) -> None:
    rows = ratings.row_labels[[7, 1]].tolist()
    found = to_lists(Scorer(path, "complete")(make_batch(kind, row=rows)))
    known = {(row, column) for row, column, _ in zip(*ratings.entries(), strict=True)}
    wanted = [
        (row, column)
        for row in rows
        for column in ratings.column_labels.tolist()
        if (row, column) not in known
    ]
    assert list(zip(found["row"], found["column"], strict=True)) == wanted
    np.testing.assert_allclose(
        found["prediction"], model.predict(found["row"], found["column"]), rtol=1e-6
    )


def test_parts_of_a_large_completion_follow_each_other(tmp_path: Path) -> None:
    observed = np.ones((4, 2_000), dtype=bool)
    observed[np.arange(4), np.arange(4)] = False
    rows, columns = np.nonzero(observed)
    matrix = ObservedMatrix.from_entries(rows, columns, 1.0 + columns % 5)
    Means(presence=None, rank_by="value").fit(matrix).save(tmp_path / "means.safetensors")
    asked = np.arange(600) % 4  # more than a million cells
    found = Scorer(tmp_path / "means.safetensors", "complete")({"row": asked})
    assert np.array_equal(found["row"], asked)
    assert np.array_equal(found["column"], asked)


@pytest.mark.slow
def test_predictions_and_distributions_drift_as_those_of_the_model(tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    rows, columns = np.divmod(dice.permutation(40 * 20)[:600], 20)
    days = dice.integers(0, 365, 600)
    values = np.clip(np.round(3 + np.where(columns % 2, -4, 4) * (days / 365 - 0.5)), 1, 5)
    dated = ObservedMatrix.from_entries(
        rows, columns, values, Scale(levels=[1, 2, 3, 4, 5]), times=10**9 + 86400 * days
    )
    settings: dict[str, Any] = {
        "hidden_sizes": (8,),
        "latent_size": 3,
        "epochs": 2,
        "views": 2,
        "device": "cpu",
    }
    model = OrdinalDMF(seed=0, linear_iterations=2, times="auto", **settings).fit(dated)
    assert model.has_drift
    model.save(tmp_path / "ordinal.safetensors")
    history = [[], [0, 1]], [[], [5.0, 1.0]]
    batch = make_batch(
        "numpy", row=[3, 99], column=[4, 4], history_columns=history[0], history_values=history[1]
    )
    folded = model.fold_in([0, 1], [5.0, 1.0])
    for task in ("predict", "complete", "recommend"):
        found = Scorer(tmp_path / "ordinal.safetensors", task, distribution=True)(batch)
        known = found["row"] == 3
        pairs = found["row"][known], found["column"][known]
        expected = model.predict(*pairs), folded.predict(found["column"][~known])
        np.testing.assert_allclose(found["prediction"], np.concatenate(expected), rtol=1e-6)
        likely = (
            model.predict_distribution(*pairs),
            folded.predict_distribution(found["column"][~known]),
        )
        np.testing.assert_allclose(
            np.stack(list(found["distribution"])), np.concatenate(likely), atol=1e-6
        )


def test_schema_is_fixed_whatever_the_batch(path: Path, integers: Path) -> None:
    for scorer, text in ((Scorer(path), pa.string()), (Scorer(integers), pa.int64())):
        ids = {"row": text, "rank": pa.int32(), "column": text}
        schema = pa.schema(ids | dict.fromkeys(["prediction", "presence", "liked"], pa.float64()))
        assert scorer.schema == schema
        empty = pa.table({"row": pa.array([], text)})
        assert scorer(empty).schema == schema
        assert scorer(empty).num_rows == 0
        assert scorer.empty_frame.columns.tolist() == schema.names
    chances = "`presence` double, `liked` double"
    assert (
        Scorer(integers).spark_schema
        == f"`row` bigint, `rank` int, `column` bigint, `prediction` double, {chances}"
    )
    assert Scorer(integers, "predict").schema.names == ["row", "column", "prediction"]


def test_distribution_is_a_list_of_probabilities(ratings: ObservedMatrix, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "hidden_sizes": (8,),
        "latent_size": 2,
        "epochs": 2,
        "views": 2,
        "device": "cpu",
    }
    model = OrdinalDMF(seed=0, linear_iterations=4, **settings).fit(ratings)
    model.save(tmp_path / "ordinal.safetensors")
    scorer = Scorer(tmp_path / "ordinal.safetensors", n=2, distribution=True)
    row = ratings.row_labels[0]
    table = scorer(pa.table({"row": [row]}))
    assert table.schema.field("distribution").type == pa.list_(pa.float64())
    expected = model.predict_distribution([row] * 2, table["column"].to_pylist())
    np.testing.assert_allclose(np.array(table["distribution"].to_pylist()), expected, rtol=1e-6)
    assert scorer.spark_schema.endswith("`distribution` array<double>")


def test_unknown_rows_and_columns_are_treated_as_asked(
    path: Path, model: Model, ratings: ObservedMatrix
) -> None:
    known, film = ratings.row_labels[0], ratings.column_labels[0]
    left = Scorer(path, n=2, unknown="nan")({"row": np.array([known, "nobody"])})
    assert set(left["row"].tolist()) == {known}
    pairs = {"row": np.array([known, "nobody"]), "column": np.array([film, film])}
    assert np.isnan(Scorer(path, "predict", unknown="nan")(pairs)["prediction"]).tolist() == [
        False,
        True,
    ]
    fallback = Scorer(path, "predict", unknown="fallback")(pairs)["prediction"]
    np.testing.assert_allclose(
        fallback, model.predict([known, "nobody"], [film, film], unknown="fallback")
    )


def test_pickle_holds_the_path_and_no_model(path: Path, ratings: ObservedMatrix) -> None:
    scorer = Scorer(path, n=2)
    batch = {"row": ratings.row_labels[:3].astype(object)}
    first = scorer(batch)
    stored = pickle.dumps(scorer)
    assert len(stored) < 2_000
    again = pickle.loads(stored)(batch)  # noqa: S301
    assert {name: values.tolist() for name, values in first.items()} == {
        name: values.tolist() for name, values in again.items()
    }


def test_threads_are_as_before_after_a_batch(path: Path, ratings: ObservedMatrix) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        Scorer(path, threads=1)({"row": ratings.row_labels[:1].astype(object)})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("given", "error", "word"),
    [
        (lambda path: Scorer(path, "score"), BadSetting, "recommend"),  # type: ignore[arg-type]
        (lambda path: Scorer(path, "predict", exclude=["x"]), BadSetting, "exclude"),
        (lambda path: Scorer(path, threads=0), BadSetting, "threads"),
        (
            lambda path: Scorer(path, distribution=True)({"row": np.array(["x"])}),
            BadSetting,
            "distribution",
        ),
        (lambda path: Scorer(path)({"user": np.array(["x"])}), BadEntries, "'row'"),
        (lambda path: Scorer(path)([1, 2]), BadEntries, "Arrow"),
        (lambda path: Scorer(path)(pa.table({"row": ["x", None]})), BadEntries, "None"),
        (lambda path: Scorer(path.with_name("none"))({"row": np.array(["x"])}), FileAbsent, "none"),
    ],
)
def test_wrong_input_is_refused(path: Path, given: Any, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        given(path)


def test_text_is_no_id_of_a_model_with_integers(integers: Path) -> None:
    with pytest.raises(BadEntries, match="integers"):
        Scorer(integers)({"row": np.array(["100"])})
