"""Features by position: those of training, those that came since, and those that are gone."""

import numpy as np
import pytest

from deepmf.errors import BadFeatures
from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.feature_vectors import FeatureVectors
from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labels

LABELS = Labels(["ann", "bob", "carol"], axis="row")
PEOPLE = Features.from_columns(
    ["bob", "nobody", "ann", "zoe"], {"age": [25.0, 30.0, 40.0, 61.0], "langs": ["en|fr", "en", "de|en|fr", "fr"]}
)


@pytest.fixture
def table() -> AxisFeatures:
    return AxisFeatures.of(LABELS, PEOPLE)


def said(features: AxisFeatures, count: int) -> list[list[str]]:
    """Return what the features of the first positions say."""
    return [
        [item.text for item in features.encoding.items(features.take(np.array([at])).padded(1))] for at in range(count)
    ]


def other(table: AxisFeatures, **values: object) -> FeatureVectors:
    return table.of_one(values)


def test_labels_find_their_features_and_may_lack_them(table: AxisFeatures) -> None:
    assert said(table, 4) == [["40", "en", "fr"], ["25", "en", "fr"], [], []]
    assert table.take(np.arange(4)).are_known.tolist() == [True, True, False, False]
    with pytest.raises(BadFeatures, match="no label of the row features is a row of the matrix"):
        AxisFeatures.of(Labels([1, 2], axis="row"), PEOPLE)


def test_the_encoding_is_learned_from_labels_with_entries_alone(table: AxisFeatures) -> None:
    assert table.encoding == PEOPLE.take(np.array([0, 2])).encoding()
    ages = Features(LABELS.array, {"age": [20.5, 40.5, 90.0]})
    counted = AxisFeatures.of(LABELS, ages, np.array([3, 5, 0]))  # "carol" has no entry
    assert counted.encoding == ages.take(np.array([0, 1])).encoding()
    codes = Features(range(40), {"code": [*([1, 2] * 10), *(0.5 * k for k in range(20))]})
    seen = AxisFeatures.of(Labels(range(20), axis="row"), codes)
    assert seen.encoding.kinds == {"code": "category"}
    with pytest.raises(BadFeatures, match="no value"):
        AxisFeatures.of(LABELS, PEOPLE, np.array([0, 0, 1]))  # "carol" alone has entries, and no features


def test_changes_come_on_top_and_the_old_table_stays(table: AxisFeatures) -> None:
    wide = other(table, age=50, langs="en|fr|xx")
    once = table.changed(np.array([4, 2]), wide.followed_by(other(table, age=33)))
    assert said(once, 5) == [["40", "en", "fr"], ["25", "en", "fr"], ["33"], [], ["50", "en", "fr"]]
    twice = once.changed(np.array([0, 4]), other(table, age=61).followed_by(other(table, age=30)))
    assert said(twice, 5) == [["61"], ["25", "en", "fr"], ["33"], [], ["30"]]
    assert twice.positions.tolist() == [0, 2, 4]
    assert said(table, 3) == [["40", "en", "fr"], ["25", "en", "fr"], []]
    assert twice.are_as_trained(np.arange(5)).tolist() == [False, True, False, True, False]


def test_taking_in_any_order_is_taking_one_by_one(table: AxisFeatures) -> None:
    changed = table.changed(np.array([1, 3]), other(table, age=1, langs="en").followed_by(other(table, langs="fr")))
    order = np.array([3, 0, 1, 1, 2, 9, 3])
    together = changed.take(order)
    for place, at in enumerate(order):
        alone = changed.take(np.array([at]))
        table_of_weights = np.random.default_rng(0).normal(size=(changed.n_inputs, 2))
        np.testing.assert_array_equal(
            together.take(np.array([place])).product(table_of_weights), alone.product(table_of_weights)
        )


def test_no_change_is_none(table: AxisFeatures) -> None:
    none = np.empty(0, dtype=np.int64)
    assert table.changed(none, FeatureVectors.empty(0, table.n_inputs)) is table
    assert table.without(none) is table


def test_what_is_forgotten(table: AxisFeatures) -> None:
    later = table.changed(
        np.array([3, 4, 5]), other(table, age=30).followed_by(other(table, age=40)).followed_by(other(table, age=61))
    )
    assert said(later.without(np.array([1, 4])), 5) == [["40", "en", "fr"], [], [], ["30"], ["61"]]
    assert said(later.without(np.array([3, 4, 5])), 4) == [["40", "en", "fr"], ["25", "en", "fr"], [], []]
    assert later.without(np.array([3, 4, 5])).extra is None
    assert said(table.without(np.array([0])), 2) == [[], ["25", "en", "fr"]]


def test_features_of_one(table: AxisFeatures) -> None:
    assert [item.text for item in table.encoding.items(table.of_one({"langs": ["fr", "en"]}))] == ["en", "fr"]
    assert [item.text for item in table.encoding.items(table.of_one({"age": "25"}))] == ["25"]
    for nothing in (None, {}):
        assert not table.of_one(nothing).are_known.any()
    with pytest.raises(BadFeatures, match="fitted without the feature 'height'; it knows age, langs"):
        table.of_one({"height": 3})
    with pytest.raises(BadFeatures, match="values by name, such as a dict; got list"):
        table.of_one(["age"])  # type: ignore[arg-type]
    with pytest.raises(BadFeatures, match="the feature 'age' cannot be read as numbers"):
        table.of_one({"age": "old"})


def test_the_digest_tells_tables_apart(table: AxisFeatures) -> None:
    same = AxisFeatures.of(LABELS, PEOPLE.take(np.array([3, 2, 1, 0])))
    assert same.digest() == table.digest()
    others = [
        AxisFeatures.of(LABELS, PEOPLE.relabelled(["bob", "nobody", "carol", "ann"])),
        AxisFeatures.of(Labels(["bob", "ann", "carol"], axis="row"), PEOPLE),
    ]
    assert len({each.digest() for each in (table, *others)}) == 3
