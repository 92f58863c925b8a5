"""Vectors on a device: what is taken of sparse ones is the rows of the dense table."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepmf.layers.vectors import DenseVectors, SparseBatch, SparseVectors, StoredVectors, entry_places

# A table of which some cells are observed; None is not, and an observed 0 is an entry.
Table = list[list[float | None]]
tables = st.integers(1, 5).flatmap(
    lambda width: st.lists(
        st.lists(st.none() | st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=width, max_size=width), max_size=6
    )
)


def sparse_of(table: Table, index_type: torch.dtype = torch.int32) -> SparseVectors:
    counts = [sum(cell is not None for cell in row) for row in table]
    entries = [(place, cell) for row in table for place, cell in enumerate(row) if cell is not None]
    starts = torch.tensor([0, *counts]).cumsum(0).to(index_type)
    indices = torch.tensor([place for place, _ in entries], dtype=index_type)
    return SparseVectors(starts, indices, torch.tensor([cell for _, cell in entries]))


def dense_of(table: Table) -> Tensor:
    return torch.tensor([[cell or 0.0 for cell in row] for row in table])


def table_of(batch: SparseBatch, width: int) -> Tensor:
    """Write a batch's entries into a table, one by one."""
    table = torch.zeros(batch.starts.numel() - 1, width)
    for row, (start, end) in enumerate(zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True)):
        for entry in range(start, end):
            table[row, int(batch.indices[entry])] += batch.weights[entry]
    return table


EXAMPLE: Table = [[None, 2.0, None], [None, None, None], [0.5, 0.0, -1.0], [None, None, 3.0]]


@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
@pytest.mark.parametrize("ids", [[0, 1, 2, 3], [3, 0], [2, 2, 1, 2], [1], [1, 1], [], [3, 2, 1, 0, 3]], ids=str)
def test_taken_vectors_are_rows_of_the_table(ids: list[int], index_type: torch.dtype) -> None:
    wanted, table = torch.tensor(ids, dtype=torch.int64), dense_of(EXAMPLE)
    batch = sparse_of(EXAMPLE, index_type).take(wanted)
    assert torch.equal(table_of(batch, 3), table[wanted])
    assert torch.equal(DenseVectors(table).take(wanted), table[wanted])
    assert batch.starts.tolist()[0] == 0 and batch.starts.tolist()[-1] == batch.indices.numel()
    assert batch.starts.diff().tolist() == [[1, 0, 3, 1][i] for i in ids]


@given(tables, st.data())
def test_any_rows_of_any_table(table: Table, data: st.DataObject) -> None:
    vectors = sparse_of(table)
    assert len(vectors) == len(table)
    ids = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=8)) if table else []
    batch = vectors.take(torch.tensor(ids, dtype=torch.int64))
    expected = [[cell or 0.0 for cell in table[i]] for i in ids]
    assert table_of(batch, len(table[0]) if table else 1).tolist() == expected
    # Observed zeros are entries too: none is lost on the way.
    assert batch.indices.numel() == sum(cell is not None for i in ids for cell in table[i])


def test_entry_places_point_into_the_arrays() -> None:
    places, starts = entry_places(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0, 1, 2]))
    assert places.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert starts.tolist() == [0, 3, 5, 5, 8]


def test_lengths() -> None:
    assert len(sparse_of(EXAMPLE)) == len(DenseVectors(dense_of(EXAMPLE))) == 4


def test_stored_vectors_are_read_when_they_are_taken() -> None:
    vectors, asked = sparse_of(EXAMPLE), list[list[int]]()

    def read(places: Tensor) -> tuple[Tensor, Tensor]:
        asked.append(places.tolist())
        return vectors.indices[places], vectors.weights[places]

    stored = StoredVectors(vectors.starts.int(), read)
    assert len(stored) == 4 and not asked
    assert stored.counts.tolist() == vectors.counts.tolist() == [1, 0, 3, 1]
    for taken, expected in zip(stored.take(torch.tensor([3, 0])), vectors.take(torch.tensor([3, 0])), strict=True):
        assert torch.equal(taken, expected)
    assert asked == [[4, 0]]


def test_a_part_of_vectors_knows_how_many_entries_there_are() -> None:
    part = SparseVectors(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([0.5]), counts=torch.tensor([7]))
    assert part.counts.tolist() == part.to(torch.device("cpu")).counts.tolist() == [7]
    assert part.take(torch.tensor([0])).starts.tolist() == [0, 1]
