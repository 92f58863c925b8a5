"""Validation entries: positions in the training matrix whatever the order of labels, refused where they do not fit."""

from pathlib import Path

import numpy as np
import pytest
import torch

from deepmf.data.read import read_matrix
from deepmf.errors import BadEntries, UnknownLabel, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.training import validation as validation_module
from deepmf.training.validation import ValidationEntries

STARS = Scale([1, 2, 3, 4, 5])
TRAIN = ObservedMatrix.from_entries(["a", "b", "c"], ["x", "y", "z"], [1, 2, 3], STARS)


def entries(rows: list[str], columns: list[str], values: list[float], scale: Scale = STARS) -> ObservedMatrix:
    return ObservedMatrix.from_entries(rows, columns, values, scale)


def found(validation: ObservedMatrix | None) -> ValidationEntries:
    aligned = ValidationEntries.of(TRAIN, validation)
    assert aligned is not None
    return aligned


def test_positions_are_those_of_the_training_matrix() -> None:
    aligned = found(entries(["c", "a"], ["y", "z"], [5, 4]))  # its own positions would be 0 and 1
    cells = set(zip(aligned.rows.tolist(), aligned.columns.tolist(), aligned.values.tolist(), strict=True))
    assert cells == {(2, 1, 5.0), (0, 2, 4.0)}


def test_without_entries_there_is_none() -> None:
    assert ValidationEntries.of(TRAIN, None) is None
    assert ValidationEntries.of(TRAIN, entries([], [], [])) is None


@pytest.mark.parametrize("rows, columns, unknown", [(["d"], ["x"], "'d'"), (["a"], ["w"], "'w'")])
def test_what_training_does_not_know_is_refused(rows: list[str], columns: list[str], unknown: str) -> None:
    with pytest.raises(UnknownLabel, match=unknown):
        ValidationEntries.of(TRAIN, entries(rows, columns, [3]))


def test_values_outside_the_scale_are_refused() -> None:
    with pytest.raises(BadEntries, match="validation has the scale .*10.*; the training matrix has .*5"):
        ValidationEntries.of(TRAIN, entries(["a"], ["x"], [7], Scale([1, 7, 10])))
    # Another scale does no harm where the values are of the training matrix's.
    assert found(entries(["a"], ["x"], [4], Scale([1, 4, 10]))).values.tolist() == [4.0]


def test_the_digest_tells_entries_apart() -> None:
    digest = found(entries(["a", "b"], ["x", "y"], [1, 2])).digest()
    assert digest == found(entries(["a", "b"], ["x", "y"], [1, 2])).digest() and len(digest) == 16
    others = [(["a", "c"], ["x", "y"], [1, 2]), (["a", "b"], ["x", "z"], [1, 2]), (["a", "b"], ["x", "y"], [1, 3])]
    assert len({digest} | {found(entries(*other)).digest() for other in others}) == 4


def test_on_a_device() -> None:
    aligned = found(entries(["c", "a"], ["y", "z"], [5, 4]))
    tensors = aligned.to(torch.device("cpu"))
    for tensor, array in zip(tensors, aligned, strict=True):
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_array_equal(tensor, array)
    assert tensors.rows.dtype == tensors.columns.dtype == torch.int64


def test_values_beyond_an_interval_are_taken() -> None:
    train = ObservedMatrix.from_entries(["a", "b"], ["x", "x"], [0.5, 1.5], Scale(low=0.5, high=1.5))
    aligned = ValidationEntries.of(train, entries(["a"], ["x"], [1.75], Scale(low=0, high=2)))
    assert aligned is not None and aligned.values.tolist() == [1.75]


def test_as_many_as_are_enough_are_compared_on(monkeypatch: pytest.MonkeyPatch) -> None:
    many = ValidationEntries(np.arange(50), np.arange(50) + 100, np.arange(50) / 10)
    assert many.sampled(seed=0) is many
    monkeypatch.setattr(validation_module, "_MOST_COMPARED_ON", 20)
    first, again, other = (many.sampled(seed=seed) for seed in (0, 0, 1))
    assert np.unique(first.rows).size == 20
    np.testing.assert_array_equal(first.columns, first.rows + 100)  # the entries themselves
    np.testing.assert_array_equal(first.values, first.rows / 10)
    np.testing.assert_array_equal(first.rows, again.rows)
    assert not np.array_equal(first.rows, other.rows)


def test_a_store_that_was_changed_while_open_is_not_read(tmp_path: Path) -> None:
    TRAIN.write(tmp_path / "r.store")
    matrix = read_matrix(tmp_path / "r.store")
    (tmp_path / "r.store" / "values").unlink()
    for train, validation in ((TRAIN, matrix), (matrix, TRAIN)):
        with pytest.raises(UnreadableFile, match=r"r.store was changed while it was open \(values\); read it again"):
            ValidationEntries.of(train, validation)
