"""Folded rows: checks of histories, shapes of one and of many, pairs, rows of a matrix, and real
values."""

from typing import Any

import numpy as np
import pytest

from deepmf.errors import BadEntries, BadSetting, NothingObserved, OffScale, UnknownLabel
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.fold_in import FoldedRows, fold_in_matrix
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.testing import additive

ONE = (["column 4", "column 2"], [5, 4])
TWO = (["column 7"], [1])
ASKED = ["column 9", "column 0", "column 4"]


@pytest.fixture(scope="module")
def means() -> Means:
    return Means(shrinkage=2.0).fit(additive())


@pytest.fixture(scope="module")
def ordinal() -> OrdinalDMF:
    settings = {
        "hidden_sizes": (8,),
        "latent_size": 4,
        "epochs": 3,
        "views": 3,
        "landmarks": 4,
        "device": "cpu",
    }
    return OrdinalDMF(**settings, linear_iterations=4).fit(additive())


def test_means_by_hand(means: Means) -> None:
    folded = means.fold_in(*ONE)
    effects = dict(zip(means.column_labels_, means.column_effects_, strict=True))
    own = sum(value - means.mean_ - effects[column] for column, value in zip(*ONE, strict=True)) / (
        2 + 2
    )
    expected = np.clip([means.mean_ + own + effects[column] for column in ASKED], 1, 5)
    np.testing.assert_allclose(folded.predict(ASKED), expected)
    np.testing.assert_array_equal(
        folded.predict_levels(ASKED), means.scale_.nearest_level(expected)
    )


def test_entries_are_in_the_order_of_columns(means: Means) -> None:
    folded = FoldedRows.of(means.rankers_, means.predictor_, [ONE, TWO], single=False)
    assert folded.observed.starts.tolist() == [0, 2, 3]
    assert folded.observed.others.tolist() == [2, 4, 7] and folded.observed.values.tolist() == [
        4,
        5,
        1,
    ]


def test_one_row_has_no_axis_for_rows(ordinal: OrdinalDMF) -> None:
    one, many = ordinal.fold_in(*ONE), ordinal.fold_in_many([ONE, TWO])
    assert one.predict(ASKED).shape == one.predict_levels(ASKED).shape == (3,)
    assert one.predict_distribution(ASKED).shape == (3, 5)
    assert [end.shape for end in one.predict_interval(ASKED)] == [(3,), (3,)]
    assert one.recommend(n=4).labels.shape == (4,)
    assert many.predict(ASKED).shape == many.predict_levels(ASKED, metric="mae").shape == (2, 3)
    assert many.predict_distribution(ASKED).shape == (2, 3, 5)
    assert [end.shape for end in many.predict_interval(ASKED)] == [(2, 3), (2, 3)]
    assert many.recommend(n=4).labels.shape == (2, 4)
    assert many.predict([]).shape == (2, 0) and many.predict_distribution([]).shape == (2, 0, 5)
    np.testing.assert_allclose(
        many.predict_distribution(ASKED)[0], one.predict_distribution(ASKED), atol=1e-6
    )
    # of few entries, a distribution is wider, and its mean differs from the prediction
    np.testing.assert_allclose(
        one.predict_distribution(ASKED) @ [1, 2, 3, 4, 5], one.predict(ASKED), atol=0.05
    )


def test_rankings_leave_out_what_is_observed_and_fill_up_with_nothing(means: Means) -> None:
    one, many = means.fold_in(*ONE), means.fold_in_many([ONE, TWO])
    assert one.recommend(n=99).labels.size == 23 and not {"column 2", "column 4"} & set(
        one.recommend(n=99).labels
    )
    assert one.recommend(n=99, include_observed=True).labels.size == 25
    assert one.recommend(among=["column 4", "column 9", "column 9"]).labels.tolist() == ["column 9"]
    assert one.recommend(among=["column 3", "column 9"], exclude=["column 3"]).labels.tolist() == [
        "column 9"
    ]
    assert many.recommend(among=["column 3"], exclude=["column 3"]).labels.shape == (2, 0)
    with pytest.raises(UnknownLabel, match="'column 99'"):
        one.recommend(exclude=["column 99"])
    best = many.recommend(n=99)
    assert np.isnan(best.values).sum(axis=1).tolist() == [2, 1] and best.labels.shape == (2, 25)
    for column in ASKED[:2]:
        at = best.labels[1].tolist().index(column)
        assert best.values[1, at] == pytest.approx(many.predict([column])[1, 0])


def test_pairs_of_rows_by_number_and_columns(ordinal: OrdinalDMF) -> None:
    many = ordinal.fold_in_many([ONE, TWO])
    rows, columns = np.array([1, 0, 1]), ["column 0", "column 0", "column 9"]
    whole = many.predict(["column 0", "column 9"])
    np.testing.assert_allclose(
        many.predict_at(rows, columns), [whole[1, 0], whole[0, 0], whole[1, 1]], rtol=1e-6
    )


def test_the_rows_of_a_matrix_whatever_their_labels(means: Means) -> None:
    histories = ObservedMatrix.from_entries(
        ["row 1", "row 1", "row 2"], [*ONE[0], *TWO[0]], [*ONE[1], *TWO[1]], means.scale_
    )  # the model has rows of these labels, with other entries
    folded = fold_in_matrix(means.rankers_, means.predictor_, histories)
    np.testing.assert_array_equal(
        folded.predict(ASKED), means.fold_in_many([ONE, TWO]).predict(ASKED)
    )
    with pytest.raises(UnknownLabel, match="'Alien'"):
        stranger = ObservedMatrix.from_entries(["n"], ["Alien"], [3], means.scale_)
        fold_in_matrix(means.rankers_, means.predictor_, stranger)
    with pytest.raises(OffScale, match="0, 9"):
        wide = ObservedMatrix.from_entries(["n", "n"], ASKED[:2], [0, 9])
        fold_in_matrix(means.rankers_, means.predictor_, wide)
    with pytest.warns(NothingObserved, match="^1 row"):
        empty = ObservedMatrix.from_entries(
            ["n"], ASKED[:1], [3], means.scale_, row_labels=["n", "m"]
        )
        nothing = fold_in_matrix(means.rankers_, means.predictor_, empty).predict(ASKED)[1]
    np.testing.assert_allclose(nothing, means.predict(["nobody"] * 3, ASKED, unknown="fallback"))


def test_any_iterables_are_histories(means: Means) -> None:
    expected = means.fold_in(*ONE).predict(ASKED)
    ratings = dict(zip(*ONE, strict=True))
    for columns, values in (
        (ratings.keys(), ratings.values()),
        (iter(ONE[0]), iter(ONE[1])),
        (np.array(ONE[0]), np.array(ONE[1], dtype=np.int8)),
        (tuple(ONE[0]), ["5", "4.0"]),
    ):
        np.testing.assert_array_equal(means.fold_in(columns, values).predict(iter(ASKED)), expected)


def test_a_scale_without_levels(means: Means) -> None:
    matrix = additive()
    real = ObservedMatrix.from_entries(
        *matrix.entries()[:2], matrix.values / 7, Scale(low=0, high=1)
    )
    folded = Means().fit(real).fold_in(["column 4", "column 2"], [0.3, 1.0])
    assert np.all((folded.predict(ASKED) > 0) & (folded.predict(ASKED) < 1))
    with pytest.raises(BadSetting, match="levels"):
        folded.predict_levels(ASKED)


def test_one_of_several_is_as_if_it_were_alone(ordinal: OrdinalDMF) -> None:
    alone, second = ordinal.fold_in(*TWO), ordinal.fold_in_many([ONE, TWO]).row(1)
    np.testing.assert_allclose(second.predict(ASKED), alone.predict(ASKED), rtol=1e-5)
    assert second.recommend(3).labels.tolist() == alone.recommend(3).labels.tolist()
    np.testing.assert_allclose(
        second.explain(ASKED[0]).effects, alone.explain(ASKED[0]).effects, atol=1e-5
    )


@pytest.mark.parametrize(
    "histories",
    [
        5.0,
        [1e308],
        ["5"],
        [None],
        [("column 4",)],
        {"column 4": 5},
        np.zeros((2, 2)),
        [(1, 2, 3, 4)],
    ],
)
def test_what_is_no_list_of_histories_is_refused(means: Means, histories: object) -> None:
    with pytest.raises(BadEntries, match="histor"):
        means.fold_in_many(histories)  # type: ignore[arg-type]


def test_words_that_are_none_of_the_choices_are_refused(means: Means) -> None:
    words: Any = np.array(["row", "error"])
    with pytest.raises(BadSetting, match="axis"):
        means.explain("row 1", "column 1", axis=words)
    with pytest.raises(BadSetting, match="missing"):
        means.forget(rows=["row 1"], missing=words)
    with pytest.raises(BadSetting, match="conflicts"):
        means.extend(additive(), conflicts=words)
