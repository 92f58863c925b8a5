"""A changed model, whatever happened to it, is the model that is built at once from the entries it
then has."""

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from deepmf.data import split_arrivals
from deepmf.datasets import generate
from deepmf.errors import BadEntries, UnknownLabel
from deepmf.matrix.axis_entries import Axis
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.dmf import DMF
from deepmf.models.dmfd import DMFD
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.scoring.encoders import SolvingEncoder
from deepmf.testing import additive

TRAIN = additive(9, 7, seed=4)
ROWS, COLUMNS = TRAIN.row_labels.tolist(), TRAIN.column_labels.tolist()
NEW_ROWS, NEW_COLUMNS = ["ann", "bea"], ["Alien", "Big"]
TRAINED = {(row, column): value for row, column, value in zip(*TRAIN.entries(), strict=True)}

NETWORK = {"hidden_sizes": (6,), "latent_size": 3, "epochs": 2, "device": "cpu"}
MODELS = [
    pytest.param(Means(), marks=pytest.mark.slow),
    ALS(latent_size=2, epochs=5, presence=None),
    pytest.param(DMF(**NETWORK), marks=pytest.mark.slow),
    pytest.param(
        OrdinalDMF(**NETWORK, views=2, landmarks=3, linear_iterations=3), marks=pytest.mark.slow
    ),
    pytest.param(BayesianMF(latent_size=2, epochs=40, device="cpu"), marks=pytest.mark.slow),
]


def to_matrix(entries: dict[tuple[str, str], float]) -> ObservedMatrix:
    pairs = list(entries)
    return ObservedMatrix.from_entries(
        [row for row, _ in pairs],
        [column for _, column in pairs],
        list(entries.values()),
        TRAIN.scale,
    )


class Changes(RuleBasedStateMachine):
    """A model that changes, beside a plain dict of the entries it should have."""

    trained: Model

    def __init__(self) -> None:
        super().__init__()
        self.model, self.entries = self.trained, dict(TRAINED)
        self.row_names: dict[str, str] = {}
        areas = self.trained.predicts
        self.rows = ROWS + NEW_ROWS * ("II" in areas)
        self.columns = COLUMNS + NEW_COLUMNS * ("III" in areas)

    def labels(self, axis: int) -> set[str]:
        """The labels that the model should know: those of training, and new ones that have
        entries."""
        return {pair[axis] for pair in self.entries} | set((ROWS, COLUMNS)[axis])

    @rule(data=st.data(), replace=st.booleans())
    def extend(self, data: Any, replace: bool) -> None:
        pairs = st.tuples(st.sampled_from(self.rows), st.sampled_from(self.columns))
        new = data.draw(st.dictionaries(pairs, st.integers(1, 5), min_size=1, max_size=4))
        changed = {pair: value for pair, value in new.items() if self.entries.get(pair) != value}
        if not changed or (not replace and changed.keys() & self.entries.keys()):
            with pytest.raises(BadEntries):
                self.model.extend(to_matrix(new), conflicts="replace" if replace else "error")
            return
        self.model = self.model.extend(to_matrix(new), conflicts="replace" if replace else "error")
        self.entries |= new

    @rule(data=st.data())
    @precondition(lambda self: self.entries)
    def forget_entries(self, data: Any) -> None:
        gone = data.draw(
            st.lists(st.sampled_from(sorted(self.entries)), min_size=1, max_size=3, unique=True)
        )
        left = {pair for pair in self.entries if pair not in gone}
        # a new label stays without entries: it is forgotten below
        for axis, known in enumerate((ROWS, COLUMNS)):
            lost = {pair[axis] for pair in gone} - {pair[axis] for pair in left} - set(known)
            if lost:
                return
        self.model = self.model.forget(
            entries=([row for row, _ in gone], [column for _, column in gone])
        )
        self.entries = {pair: self.entries[pair] for pair in self.entries if pair in left}

    @rule(data=st.data(), axis=st.sampled_from([0, 1]))
    def forget_label(self, data: Any, axis: int) -> None:
        label = data.draw(
            st.sampled_from(
                sorted({pair[axis] for pair in self.entries} or {(ROWS, COLUMNS)[axis][0]})
            )
        )
        left = {pair: value for pair, value in self.entries.items() if pair[axis] != label}
        other = 1 - axis
        emptied = {pair[other] for pair in self.entries} - {pair[other] for pair in left}
        if emptied - set((ROWS, COLUMNS)[other]) or len(left) == len(self.entries):
            return
        self.model = self.model.forget(**{("rows", "columns")[axis]: [label]})
        self.entries = left
        if axis == 0:
            self.row_names.pop(label, None)

    @rule(data=st.data())
    def name(self, data: Any) -> None:
        row = data.draw(st.sampled_from(sorted(self.labels(0))))
        self.model = self.model.with_names(rows={row: f"name of {row}"})
        self.row_names[row] = f"name of {row}"

    @rule(suffix=st.sampled_from([".safetensors", ".model"]))
    def save_and_load(self, suffix: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for place, model in enumerate((self.model, load(self.save(folder, suffix)))):
                model.save(Path(folder) / f"{place}.safetensors")
            one, two = ((Path(folder) / f"{place}.safetensors").read_bytes() for place in (0, 1))
            assert one == two
            self.model = load(Path(folder) / "0.safetensors")

    def save(self, folder: str, suffix: str) -> Path:
        self.model.save(Path(folder) / f"saved{suffix}")
        return Path(folder) / f"saved{suffix}"

    @rule(data=st.data())
    @precondition(lambda self: "II" in self.trained.predicts)
    def fold_in(self, data: Any) -> None:
        history = data.draw(
            st.dictionaries(st.sampled_from(COLUMNS), st.integers(1, 5), min_size=1, max_size=3)
        )
        folded = self.model.fold_in(list(history), list(history.values()))
        more = self.model.extend(
            to_matrix({("guest", column): value for column, value in history.items()})
        )
        every = more.column_labels_
        np.testing.assert_array_equal(
            folded.predict(every), more.predict(["guest"] * every.size, every)
        )
        with pytest.raises(UnknownLabel):
            self.model.predict(["guest"], COLUMNS[:1])

    @rule()
    @precondition(lambda self: self.entries != TRAINED)
    def undo_everything(self) -> None:
        """What came is forgotten and what went comes back: the file is that of the trained model,
        to the bit."""
        back = {pair: value for pair, value in TRAINED.items() if self.entries.get(pair) != value}
        model = self.model.extend(to_matrix(back), conflicts="replace") if back else self.model
        rows, columns = (
            sorted(self.labels(axis) - set(known)) for axis, known in enumerate((ROWS, COLUMNS))
        )
        model = (
            model.forget(rows=rows or None, columns=columns or None) if rows or columns else model
        )
        left = [
            pair
            for pair in self.entries
            if pair not in TRAINED and pair[0] in ROWS and pair[1] in COLUMNS
        ]
        if left:
            model = model.forget(entries=([row for row, _ in left], [column for _, column in left]))
        with tempfile.TemporaryDirectory() as folder:
            for name, each in (
                ("one", model),
                ("two", self.trained.with_names(rows=dict(model.row_names_))),
            ):
                each.save(Path(folder) / name)
            assert Path(folder, "one").read_bytes() == Path(folder, "two").read_bytes()

    @invariant()
    def changed_rows_and_columns_are_encoded_from_their_entries(self) -> None:
        for axis, fold in enumerate((self.model.fold_in, self.model.fold_in_column)):
            labels, others = (self.model.row_labels_, self.model.column_labels_)[:: 1 - 2 * axis]
            for label in labels:
                mine = {pair: value for pair, value in self.entries.items() if pair[axis] == label}
                if not self.counts_new(axis, label):
                    mine = {
                        pair: value
                        for pair, value in mine.items()
                        if pair[1 - axis] in (COLUMNS, ROWS)[axis]
                    }
                if not mine or mine == {
                    pair: value for pair, value in TRAINED.items() if pair[axis] == label
                }:
                    continue
                folded = fold([pair[1 - axis] for pair in mine], list(mine.values()))
                pairs = ([label] * others.size, others)[:: 1 - 2 * axis]
                # A trained row moves by its entries in new columns; its trained ones count by their
                # number.
                trained = {pair: value for pair, value in TRAINED.items() if pair[0] == label}
                moves = axis == 0 and label in ROWS and trained.items() <= mine.items()
                moves &= all(column not in COLUMNS for _, column in mine.keys() - trained.keys())
                rtol = (
                    0.05
                    if moves and getattr(self.model.predictor_.encoder, "moves_rows", False)
                    else 1e-4
                )
                np.testing.assert_allclose(
                    self.model.predict(*pairs), folded.predict(others), rtol=rtol
                )

    def counts_new(self, axis: int, label: str) -> bool:
        """Whether a row, or a column, is solved for by all its entries, also those in new columns,
        or rows."""
        met = {column for row, column in self.entries if row not in ROWS and column not in COLUMNS}
        mine = {column for row, column in self.entries if row == label} if axis == 0 else {label}
        return isinstance(self.model.predictor_.encoder, SolvingEncoder) and bool(met & mine)

    @invariant()
    def it_is_the_model_of_its_entries(self) -> None:
        added = {pair: value for pair, value in self.entries.items() if TRAINED.get(pair) != value}
        gone = [pair for pair in TRAINED if pair not in self.entries]
        once = self.trained.extend(to_matrix(added), conflicts="replace") if added else self.trained
        if gone:
            once = once.forget(entries=([row for row, _ in gone], [column for _, column in gone]))
        rows, columns = sorted(self.labels(0)), sorted(self.labels(1))
        assert (
            sorted(self.model.row_labels_) == rows and sorted(self.model.column_labels_) == columns
        )
        pairs = [row for row in rows for _ in columns], columns * len(rows)
        np.testing.assert_allclose(self.model.predict(*pairs), once.predict(*pairs), rtol=1e-5)
        # new columns describe no row
        described = [row for row, column in self.entries if column in COLUMNS]
        assert self.model.row_counts(rows).tolist() == [described.count(row) for row in rows]
        store = self.model.entries_
        assert (
            sum(store.row_counts)
            == sum(store.column_counts)
            == store.n_entries
            == len(self.entries)
        )
        completed = self.model.complete()
        at = [
            {label: k for k, label in enumerate(labels)}
            for labels in (self.model.row_labels_, self.model.column_labels_)
        ]
        for (row, column), value in self.entries.items():
            assert completed[at[0][row], at[1][column]] == value
        unseen = set(columns) - {column for row, column in self.entries if row == rows[0]}
        assert set(self.model.recommend(rows[0], n=99, rank_by="value").labels) == unseen
        assert dict(self.model.row_names_) == self.row_names
        assert self.trained.row_labels_.tolist() == ROWS  # the model before stays as it is


@pytest.mark.filterwarnings("ignore::deepmf.errors.NothingObserved")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_changed_model_is_built_from_its_entries(model: Model) -> None:
    machine = type("Machine", (Changes,), {"trained": model.fit(TRAIN)})
    # Without shrinking, which takes minutes: the steps of a failure are few.
    few = settings(max_examples=6, stateful_step_count=10, deadline=None, phases=[Phase.generate])
    run_state_machine_as_test(machine, settings=few)


@pytest.mark.parametrize("is_read", [False, True])
def test_rows_that_met_new_ones_are_predicted_by_the_entries_that_are_left(is_read: bool) -> None:
    model = ALS(latent_size=2, epochs=5, presence=None).fit(TRAIN)
    of_ann = {(ROWS[0], "Alien"): 5, ("ann", "Alien"): 1, ("ann", COLUMNS[0]): 2}
    of_bea = {(ROWS[1], "Big"): 1, ("bea", "Big"): 4, ("bea", COLUMNS[1]): 5}
    more = model.extend(to_matrix(of_ann | of_bea))
    rows, columns = np.repeat([*ROWS, "bea"], 8), [*COLUMNS, "Big"] * 10
    if is_read:
        more.predict(rows, columns)
    left = more.forget(rows=["ann"])
    alone = model.extend(to_matrix({(ROWS[0], "Alien"): 5} | of_bea))
    np.testing.assert_allclose(left.predict(rows, columns), alone.predict(rows, columns), atol=1e-5)


def test_entries_in_new_columns_are_read_where_new_rows_have_entries_too() -> None:
    def list_read(model: Model, axis: Axis) -> list[int]:
        predictor, entries = model.predictor_, model.entries_
        return predictor.factors.read_entries(
            axis, entries, np.zeros(1, dtype=np.int64)
        ).others.tolist()

    model = ALS(latent_size=2, epochs=5, presence=None).fit(TRAIN)
    more = model.extend(to_matrix({(ROWS[0], "Alien"): 5}))
    assert list_read(more, "row") == list_read(model, "row")
    met = more.extend(to_matrix({("ann", "Alien"): 1, ("ann", COLUMNS[0]): 2}))
    assert list_read(met, "row") == [*list_read(model, "row"), len(COLUMNS)]
    assert list_read(met, "column") == list_read(model, "column")
    assert len(list_read(model, "column")) == TRAIN.column_counts[0]


SMALL: dict[str, Any] = {
    "hidden_sizes": (64,),
    "latent_size": 16,
    "epochs": 150,
    "device": "cpu",
    "presence": None,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::deepmf.errors.NothingObserved")
@pytest.mark.parametrize(
    ("model", "most"),
    [
        (Means(presence=None), 1.0),
        (ALS(presence=None), 1.0),
        (BayesianMF(presence=None, epochs=40, device="cpu"), 1.0),
        (OrdinalDMF(**SMALL | {"epochs": 5}, views=2, landmarks=8, linear_iterations=40), 1.0),
        (DMF(**SMALL), 1.05),  # also its errors for trained rows are above those of the means here
        (DMFD(**SMALL), 1.12),  # it predicts levels
    ],
    ids=lambda each: type(each).__name__,
)
def test_new_rows_with_entries_in_new_columns_alone_are_predicted_by_these(
    model: Model, most: float
) -> None:
    matrix = generate(500, 200, density=0.15, noise=0.5, seed=3).matrix
    split = split_arrivals(matrix, new_rows=0.3, new_columns=0.3, validation=0.0, seed=3)
    rows, columns, _ = split.given.entries()
    known = np.isin(rows, split.train.row_labels), np.isin(columns, split.train.column_labels)
    more = model.fit(split.train).extend(split.given.take_entries(known[0] | ~known[1]))
    asked_rows, asked_columns, expected = split.test["IV"].entries()
    error = rmse_error(more.predict(asked_rows, asked_columns), expected)
    constant = rmse_error(np.full(expected.size, split.train.mean), expected)
    of_given = Means(presence=None).fit(split.given.take_entries(known[0] | ~known[1]))
    means = rmse_error(of_given.predict(asked_rows, asked_columns, unknown="fallback"), expected)
    assert error < 0.92 * constant and error < most * means
