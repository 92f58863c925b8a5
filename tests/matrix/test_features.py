"""Features: from columns and frames, by label; what cannot be used is refused in a sentence."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deepmf.errors import BadFeatures, BadSetting, DeepMFWarning
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.matrix.features import AxisFeatures, Features, check_names
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.loading import load
from deepmf.models.means import Means

COLUMNS: dict[str, list[Any]] = {
    "year": [1979, 1988, None],
    "genres": ["Horror|Comedy", "Comedy", None],
    "seen": [datetime.date(2001, 12, 31), None, datetime.date(1999, 1, 1)],
    "tags": [["dark", "ship"], [], ["dark"]],
    "colour": [True, True, False],
    "length": [117.0, 104.5, 81.0],
}

KINDS = {"year": "number", "genres": "list", "seen": "date"}
KINDS |= {"tags": "list", "colour": "category", "length": "number"}

FILMS = ["Alien", "Big", "Cars"]


@pytest.fixture
def films() -> Features:
    return Features.from_columns(FILMS, COLUMNS)


def test_kinds_are_inferred_and_can_be_given(films: Features) -> None:
    assert films.kinds == KINDS
    assert films.names == tuple(COLUMNS)
    assert len(films) == 3
    given = Features.from_columns(FILMS, COLUMNS, kinds={"year": "category"})
    assert given.kinds == KINDS | {"year": "category"}
    assert films.with_kinds({"year": "category"}).kinds == given.kinds
    assert repr(Features.from_columns(["a"], {"x": [1]})) == "Features(1 label: x (number))"


@pytest.mark.parametrize("library", ["pandas", "polars", "lazy", "arrow", "index", "nullable"])
def test_frames_of_any_library_give_the_same(films: Features, library: str) -> None:
    table = {"film": FILMS} | COLUMNS
    frame: Any = {
        "pandas": lambda: pd.DataFrame(table),
        "polars": lambda: pl.DataFrame(table),
        "lazy": lambda: pl.LazyFrame(table),
        "arrow": lambda: pa.table(table),
        "index": lambda: pd.DataFrame(table).set_index("film"),
        "nullable": lambda: pd.DataFrame(table).convert_dtypes(),
    }[library]()
    found = Features.from_frame(frame, "film")
    assert (found.labels.tolist(), found.kinds) == (FILMS, KINDS)
    for name in films.names:
        np.testing.assert_array_equal(found.values(name), films.values(name))
    encoding = films.learn_encoding()
    assert found.learn_encoding() == encoding
    assert found.encode(encoding).weights.tobytes() == films.encode(encoding).weights.tobytes()


def test_numbers_of_all_sizes_and_categories_of_frames() -> None:
    frame = pl.DataFrame(
        {
            "id": pl.Series([7, 8], dtype=pl.Int16),
            "wide": pl.Series([1, 2], dtype=pl.Int128),
            "money": pl.Series(["1.50", "2.25"]).cast(pl.Decimal(10, 2)),
            "coded": pl.Series(["x", "y"], dtype=pl.Categorical),
        }
    )
    found = Features.from_frame(frame, "id")
    assert found.labels.tolist() == [7, 8] and found.labels.dtype == np.int64
    assert found.kinds == {"wide": "number", "money": "number", "coded": "category"}
    assert found.values("money").tolist() == [1.5, 2.25]
    assert found.values("coded").tolist() == ["x", "y"]


def test_some_labels_others_and_those_beyond(films: Features) -> None:
    some = films.take(np.array([2, 0]))
    assert some.labels.tolist() == ["Cars", "Alien"]
    assert some.values("length").tolist() == [81.0, 117.0]
    assert films.relabel([1, 2, 3]).labels.tolist() == [1, 2, 3]
    beyond = films.take_unknown(Labels(["Cars", "Zodiac"], axis="column"))
    assert beyond is not None and beyond.labels.tolist() == ["Alien", "Big"]
    assert films.take_unknown(Labels(FILMS, axis="column")) is None


def test_the_encoding_is_learned_once_and_does_not_depend_on_the_order(films: Features) -> None:
    assert films.learn_encoding() is films.learn_encoding()
    assert films.take(np.array([2, 0, 1])).learn_encoding() == films.learn_encoding()


def refused(said: str, labels: Any, columns: Any, **kinds: Any) -> None:
    with pytest.raises(BadFeatures, match=said) as error:
        Features(labels, columns, **kinds).learn_encoding()
    assert "\n" not in str(error.value)


def test_mistakes_are_one_sentence_each() -> None:
    one = {"x": [1, 2]}
    refused("'a'", ["a", "b", "a"], {"x": [1, 2, 3]})
    refused("repeats, such as 3", [3, 1, 3], {"x": [1, 2, 3]})
    refused("missing", ["a", None], one)
    refused("kind", ["a", 1], one)
    refused("list", "ab", one)
    refused("features", ["a", "b"], {})
    refused("dict", ["a", "b"], [1, 2])
    refused("3 values", ["a", "b"], {"x": [1, 2, 3]})
    refused("shape", ["a", "b"], {"x": np.zeros((2, 2), dtype=int)})
    refused("iterable", ["a", "b"], {"x": 5})
    refused("'x'", ["a", "b"], {"x": [10**400, 1]})
    refused("same", ["a", "b"], {1: [1, 2], "1": [1, 2]})
    refused("value", ["a", "b"], {"x": [None, ""]})
    refused("value", ["a", "b"], {"x": [np.nan, np.nan]})
    refused("value", [], {"x": []})
    refused("infinite", ["a", "b"], {"x": [1.0, -np.inf]})
    refused("'y'", ["a", "b"], one, kinds={"y": "number"})
    refused("'colour'", ["a", "b"], one, kinds={"x": "colour"})
    refused("numbers", ["a", "b"], {"x": ["p", "q"]}, kinds={"x": "number"})
    refused("dates", ["a", "b"], {"x": ["p", "q"]}, kinds={"x": "date"})
    refused("9999", ["a", "b"], {"x": np.array([1, 2**62], dtype="M8[D]")})


def test_a_frame_that_lacks_the_labels() -> None:
    frame = pl.DataFrame({"user": ["a", None], "age": [1, 2]})
    twice = pd.DataFrame([[1, 2, 3]], columns=["id", "x", "x"])
    for wrong, label, word in (
        (frame, "id", "'id'"),
        (frame, "user", "missing"),
        (3, "user", "int"),
        (twice, "id", "same"),
        (frame.select("user").drop_nulls(), "user", "features"),
    ):
        with pytest.raises(BadFeatures, match=word):
            Features.from_frame(wrong, label)


def test_constant_features_are_told() -> None:
    for values, shown in (([3, 3], "3.0"), (["F", "F"], "F"), ([["a"], ["a"]], r"\('a',\)")):
        with pytest.warns(DeepMFWarning, match=shown):
            Features(["a", "b"], {"x": values}).learn_encoding()
    Features(["a", "b"], {"x": [3, None]}).learn_encoding()  # whether it is missing says something


def test_no_common_label() -> None:
    features = Features(["7", "8"], {"x": [1, 2]})
    features.check_labels(Labels(["8", "9"], axis="row"))
    with pytest.raises(BadFeatures, match="'7'"):
        features.check_labels(Labels([7, 8], axis="row"))


def test_features_that_a_model_was_not_fitted_with(films: Features) -> None:
    encoding = films.learn_encoding()
    for columns, kinds, word in (
        ({"price": [3]}, {}, "'price'"),
        ({"year": ["1971"]}, {"year": "date"}, "'year'"),
        ({"year": ["early"]}, {}, "'year'"),
    ):
        with pytest.raises(BadFeatures, match=word):
            Features(["Duel"], columns, kinds=kinds).encode(encoding)
    check_names(["year"], encoding)
    # later features may lack some and have unknown categories
    vectors = Features.from_columns(["Duel"], {"genres": ["Thriller"]}).encode(encoding)
    assert vectors.n_inputs == encoding.n_inputs and encoding.items(vectors) == []


LABELS = Labels(["ann", "bob", "carol"], axis="row")

PEOPLE = Features.from_columns(
    ["bob", "nobody", "ann", "zoe"],
    {"age": [25.0, 30.0, 40.0, 61.0], "langs": ["en|fr", "en", "de|en|fr", "fr"]},
)


@pytest.fixture
def table() -> AxisFeatures:
    return AxisFeatures.of(LABELS, PEOPLE)


def said(features: AxisFeatures, count: int) -> list[list[str]]:
    """Return what the features of the first positions say."""
    return [
        [item.text for item in features.encoding.items(features.take(np.array([at])).pad(1))]
        for at in range(count)
    ]


def other(table: AxisFeatures, **values: object) -> FeatureVectors:
    return table.encode_one(values)


def test_labels_find_their_features_and_may_lack_them(table: AxisFeatures) -> None:
    assert said(table, 4) == [["40", "en", "fr"], ["25", "en", "fr"], [], []]
    assert table.take(np.arange(4)).are_known.tolist() == [True, True, False, False]
    with pytest.raises(BadFeatures, match="label"):
        AxisFeatures.of(Labels([1, 2], axis="row"), PEOPLE)


def test_the_encoding_is_learned_from_labels_with_entries_alone(table: AxisFeatures) -> None:
    assert table.encoding == PEOPLE.take(np.array([0, 2])).learn_encoding()
    ages = Features(LABELS.array, {"age": [20.5, 40.5, 90.0]})
    counted = AxisFeatures.of(LABELS, ages, np.array([3, 5, 0]))  # "carol" has no entry
    assert counted.encoding == ages.take(np.array([0, 1])).learn_encoding()
    codes = Features(range(40), {"code": [*([1, 2] * 10), *(0.5 * k for k in range(20))]})
    seen = AxisFeatures.of(Labels(range(20), axis="row"), codes)
    assert seen.encoding.kinds == {"code": "category"}
    with pytest.raises(BadFeatures, match="value"):
        # "carol" alone has entries, and no features
        AxisFeatures.of(LABELS, PEOPLE, np.array([0, 0, 1]))


def test_changes_come_on_top_and_the_old_table_stays(table: AxisFeatures) -> None:
    wide = other(table, age=50, langs="en|fr|xx")
    once = table.replace(np.array([4, 2]), wide.join(other(table, age=33)))
    assert said(once, 5) == [["40", "en", "fr"], ["25", "en", "fr"], ["33"], [], ["50", "en", "fr"]]
    twice = once.replace(np.array([0, 4]), other(table, age=61).join(other(table, age=30)))
    assert said(twice, 5) == [["61"], ["25", "en", "fr"], ["33"], [], ["30"]]
    assert twice.positions.tolist() == [0, 2, 4]
    assert said(table, 3) == [["40", "en", "fr"], ["25", "en", "fr"], []]
    assert twice.are_as_trained(np.arange(5)).tolist() == [False, True, False, True, False]


def test_taking_in_any_order_is_taking_one_by_one(table: AxisFeatures) -> None:
    vectors = other(table, age=1, langs="en").join(other(table, langs="fr"))
    changed = table.replace(np.array([1, 3]), vectors)
    order = np.array([3, 0, 1, 1, 2, 9, 3])
    alone = [changed.take(order[[place]]).to_sparse().toarray()[0] for place in range(order.size)]
    np.testing.assert_array_equal(changed.take(order).to_sparse().toarray(), alone)


def test_what_is_forgotten(table: AxisFeatures) -> None:
    new = other(table, age=30).join(other(table, age=40)).join(other(table, age=61))
    later = table.replace(np.array([3, 4, 5]), new)
    ann, bob = said(table, 2)
    assert said(later.without(np.array([1, 4])), 5) == [ann, [], [], ["30"], ["61"]]
    none_later = later.without(np.array([3, 4, 5]))
    assert said(none_later, 4) == [ann, bob, [], []] and none_later.positions.size == 0
    assert said(table.without(np.array([0])), 2) == [[], bob]


def test_features_of_one(table: AxisFeatures) -> None:
    def read(values: Any) -> list[str]:
        return [item.text for item in table.encoding.items(table.encode_one(values))]

    assert read({"langs": ["fr", "en"]}) == ["en", "fr"]
    assert read({"age": "25"}) == ["25"]
    for nothing in (None, {}):
        assert not table.encode_one(nothing).are_known.any()
    for wrong, word in (({"height": 3}, "'height'"), (["age"], "list"), ({"age": "old"}, "'age'")):
        with pytest.raises(BadFeatures, match=word):
            read(wrong)


def test_the_digest_tells_tables_apart(table: AxisFeatures) -> None:
    same = AxisFeatures.of(LABELS, PEOPLE.take(np.array([3, 2, 1, 0])))
    assert same.digest() == table.digest()
    others = [
        AxisFeatures.of(LABELS, PEOPLE.relabel(["bob", "nobody", "carol", "ann"])),
        AxisFeatures.of(Labels(["bob", "ann", "carol"], axis="row"), PEOPLE),
    ]
    assert len({each.digest() for each in (table, *others)}) == 3


@pytest.mark.parametrize(
    "values", [np.array([[3.0, 0.0], [np.nan, 0.0], [1.0, 0.0]]), [[3.0, 0.0], None, (1.0, 0.0)]]
)
def test_vectors_are_centred_and_of_length_1_on_average(values: Any) -> None:
    films = Features.from_columns(FILMS, {"plot": values})
    assert films.kinds == {"plot": "vector"}
    encoding = films.learn_encoding()
    np.testing.assert_allclose(
        films.encode(encoding).to_sparse().toarray()[:, 1:], [[1, 0, 0], [0, 0, 1], [-1, 0, 0]]
    )
    as_text = Features.from_columns(["Duel"], {"plot": ["2, 1"]}, kinds={"plot": "vector"})
    np.testing.assert_allclose(as_text.encode(encoding).to_sparse().toarray()[:, 1:], [[0, 1, 0]])
    with pytest.raises(BadFeatures, match="3 numbers"):
        Features.from_columns(["Duel"], {"plot": [[1.0, 2.0, 3.0]]}).encode(encoding)
    with pytest.raises(BadSetting, match="vector"):
        encoding.match({"plot": 1}, films.encode(encoding))


def test_vectors_predict_new_columns_and_are_stored(tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    signs, labels = dice.choice([-1.0, 1.0], size=(60, 3)), [f"film {k}" for k in range(60)]
    values = 3 + np.tile(signs[:, 0], (40, 1)) + 0.1 * dice.normal(size=(40, 60))
    train = ObservedMatrix.from_array(values[:, :50], column_labels=labels[:50])
    frame = pd.DataFrame({"film": labels, "plot": list(signs)})
    known, new = (Features.from_frame(part, "film") for part in (frame[:50], frame[50:]))
    assert known.kinds == {"plot": "vector"}
    Means(presence=None).fit(train, column_features=known).save(tmp_path / "model.safetensors")
    more = load(tmp_path / "model.safetensors").extend(column_features=new)
    assert np.corrcoef(more.predict([0] * 10, labels[50:]), signs[50:, 0])[0, 1] > 0.98
    plain, guest = (
        more.fold_in_column([0], [3.0], features=features).predict([1])[0] - values[1, 0]
        for features in (None, {"plot": signs[0]})
    )
    assert abs(guest) < abs(plain)
