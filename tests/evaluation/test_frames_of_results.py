"""`to_frame`: results of recommend, evaluate and compare as polars frames."""

import numpy as np
import polars
import pytest

from deepmf import ALS, Means, ObservedMatrix, split_entries
from deepmf.datasets import generate
from deepmf.errors import BadEntries
from deepmf.evaluation import compare, evaluate, evaluate_ranking

RATINGS = generate(60, 40, density=0.3, seed=0).matrix
SPLIT = split_entries(RATINGS, train=0.8, validation=0, test=0.2, seed=0)


@pytest.fixture(scope="module")
def model() -> ALS:
    return ALS(latent_size=3, epochs=3, seed=0).fit(SPLIT.train)


def test_recommendations(model: ALS) -> None:
    rows = RATINGS.row_labels[:3].tolist()
    best = model.recommend(rows, n=2)
    frame = best.to_frame()
    assert frame.columns == ["row", "rank", "column", "prediction", "presence", "liked"]
    assert frame["row"].to_list() == [row for row in rows for _ in range(2)]
    assert frame["column"].to_list() == best.labels.ravel().tolist()
    assert frame["rank"].to_list() == [1, 2] * 3
    named = model.with_names(columns={best.labels[0, 0]: "First"})
    assert named.recommend(rows[0], n=1).to_frame()["column_name"].to_list() == ["First"]
    assert model.similar_columns(best.labels[0, 0], n=2).to_frame().columns == [
        "rank",
        "column",
        "cosine",
    ]


def test_evaluations(model: ALS) -> None:
    errors = evaluate(model, SPLIT.test)
    frame = errors.to_frame()
    assert frame["area"].to_list() == [each.area for each in errors]
    assert frame["rmse"].to_list() == [each.rmse for each in errors]
    assert "median_rmse" not in frame.columns
    ranked = evaluate_ranking(model, SPLIT.test)
    assert ranked.to_frame().filter(area="all")["ndcg"].to_list() == [
        ranked.model.ndcg,
        ranked.popularity.ndcg,
    ]


@pytest.mark.slow
def test_models_worse_than_the_means_are_marked() -> None:
    class Worst(Means):
        def predict(self, *arguments: object, **options: object) -> np.ndarray:
            return np.full_like(super().predict(*arguments, **options), 1.0)  # type: ignore[arg-type]

    done: list[tuple[int, int | None]] = []
    found = compare(
        {"means": Means(), "worst": Worst()},
        RATINGS,
        folds=2,
        progress=lambda *now: done.append(now),
    )
    assert found.worse_than_means == ["worst"]
    assert "worst (worse than means)" in str(found)
    assert done == [(k, 4) for k in range(1, 5)]
    assert found.to_frame()["model"].to_list() == ["means", "worst"]


@pytest.mark.slow
def test_fit_takes_frames_whose_columns_are_clear() -> None:
    rows, columns, values = SPLIT.train.entries()
    frame = polars.DataFrame({"user": rows.tolist(), "item": columns.tolist(), "rating": values})
    pair = [rows[0]], [columns[0]]
    expected = Means(seed=0).fit(SPLIT.train).predict(*pair)
    for given in (frame, frame.to_pandas()):
        assert Means(seed=0).fit(given).predict(*pair) == pytest.approx(expected)
    with pytest.raises(BadEntries, match="clear"):
        Means(seed=0).fit(frame.rename({"user": "a", "item": "b", "rating": "c"}))
    with pytest.raises(BadEntries, match="read_matrix"):
        Means(seed=0).fit("ratings.csv")
    assert isinstance(Means(seed=0).fit(frame, frame.head(5)).entries_.train, ObservedMatrix)
