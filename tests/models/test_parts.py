"""Parts of a model: a part of thirty lines, registered on one, lives through all that a model does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf import ALS, Means, ObservedMatrix, load
from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.entries import ChangedStore, EntryStore, ForgetPlan
from deepmf.models.parts import PARTS, PartKind, SteadyPart
from deepmf.recommend.presence import Recency
from deepmf.scoring.effects import Effects
from deepmf.scoring.learning import Learning
from deepmf.scoring.predictor import Predictor
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, not_negative

_FORM = Form(Part("counts", "int64", ("columns",), not_negative), prefix="fame")


@dataclass(frozen=True)
class Fame(SteadyPart):
    """Predictions rise by a hundredth for each entry of a column."""

    counts: FloatArray

    def extend(self, change: ChangedStore) -> Fame:
        return Fame(change.entries.column_counts)

    def forget(self, plan: ForgetPlan, change: ChangedStore) -> Fame:
        return Fame(np.delete(self.counts, change.gone_columns))

    def adapt(self, predictor: Predictor) -> Predictor:
        return replace(predictor, effects=Effects(np.zeros(0), self.counts / 100.0))

    def describe_choice(self) -> dict[str, float]:
        return {"fame": float(self.counts.max())}

    def pack(self) -> Packed:
        return _FORM.pack(self)

    @classmethod
    def unpack(
        cls, content: Any, tensors: Tensors, entries: EntryStore, predictor: Predictor
    ) -> Fame:
        return cls(**_FORM.read(content, tensors, columns=len(entries.columns)))


def fit_fame(learning: Learning) -> dict[str, Fame]:
    return {"fame": Fame(learning.entries.column_counts)}


@pytest.fixture
def famous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTS, "fame", PartKind(Fame, f"{__name__}:fit_fame"))


RATINGS = ObservedMatrix.from_entries(
    ["ann", "ann", "bob", "bob", "cat"], ["a", "b", "a", "c", "a"], [4, 2, 5, 1, 3]
)


def find_fame(model: Any, plain: Any, columns: list[str]) -> list[float]:
    """Return by how many hundredths predictions of a model are higher than those of another one."""
    rows = ["ann"] * len(columns)
    return np.round(100 * (model.scores(rows, columns) - plain.scores(rows, columns)), 6).tolist()


@pytest.mark.usefixtures("famous")
@pytest.mark.parametrize("kind", [Means, ALS])
def test_a_new_part_is_fitted_saved_extended_and_forgotten(kind: Any, tmp_path: Path) -> None:
    new = ObservedMatrix.from_entries(["dan", "dan"], ["a", "d"], [3, 4], RATINGS.scale)
    model = kind(seed=0, presence=None).fit(RATINGS)
    columns = ["a", "b", "c"]
    plain = model._with_state(replace(model._fitted, parts={}))
    assert find_fame(model, plain, columns) == [3, 1, 1]
    assert model.chosen_on_entries_["fame"] == 3
    model.save(tmp_path / "model")
    model = load(tmp_path / "model")
    assert find_fame(model, plain, columns) == [3, 1, 1]
    more = model.extend(new)
    assert find_fame(more, plain.extend(new), [*columns, "d"]) == [4, 1, 1, 1]
    assert find_fame(model, plain, columns) == [3, 1, 1]
    less = more.forget(rows=["bob"], columns=["d"])
    assert find_fame(less, plain.extend(new).forget(rows=["bob"], columns=["d"]), columns) == [
        3,
        1,
        0,
    ]
    less.save(tmp_path / "less")
    np.testing.assert_array_equal(load(tmp_path / "less").complete(), less.complete())


def test_a_file_with_an_unknown_part_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(PARTS, "fame", PartKind(Fame, f"{__name__}:fit_fame"))
        Means().fit(RATINGS).save(tmp_path / "model")
    with pytest.raises(BadModelFile, match="fame"):
        load(tmp_path / "model")


def test_parts_are_in_the_declared_order_and_asked_cells_come_last() -> None:
    matrix = ObservedMatrix.from_sequences(
        {f"row {k}": [k % 7, k % 5 + 7, k % 3 + 12] for k in range(60)}
    )
    model = ALS(seed=0).fit(matrix)
    names = list(model._fitted.parts)  # type: ignore[union-attr]
    assert names == [name for name in PARTS if name in names] and "next" in names
    assert list(PARTS)[-1] == "asked"


def test_a_steady_part_stays_as_it_is() -> None:
    model = Means().fit(RATINGS)
    recency = Recency(1000.0, 10)
    model._fitted = replace(model._fitted, parts={"recency": recency})
    new = ObservedMatrix.from_entries(["dan"], ["a"], [3], RATINGS.scale)
    assert model.extend(new).forget(rows=["bob"])._fitted.parts == {"recency": recency}  # type: ignore[union-attr]
