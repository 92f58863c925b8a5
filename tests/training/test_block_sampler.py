"""The sampling of blocks: which rows and columns make the blocks of an epoch."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepmf.training.block_sampler import BlockSampler, SampledAxis

Blocks = list[tuple[list[int], list[int]]]
sizes = st.integers(1, 25)


def new_sampler(
    n_rows: int, n_columns: int, *, block_rows: int = 4, block_columns: int = 3, seed: int = 0, whole: bool = False
) -> BlockSampler:
    generator = torch.Generator().manual_seed(seed)
    axes = [SampledAxis(torch.arange(n_rows), block_rows), SampledAxis(torch.arange(n_columns), block_columns)]
    return BlockSampler(axes, generator=generator, whole=whole)


def epoch(sampler: BlockSampler, *, n_steps: int | None = None) -> Blocks:
    sampler.begin_epoch()
    blocks = (sampler.next_block() for _ in range(sampler.n_steps if n_steps is None else n_steps))
    return [(rows.tolist(), columns.tolist()) for rows, columns in blocks]


@given(sizes, sizes, st.integers(1, 30), st.integers(1, 30), st.integers(0, 5))
def test_an_epoch_passes_all_rows_or_all_columns(
    n_rows: int, n_columns: int, block_rows: int, block_columns: int, seed: int
) -> None:
    sampler = new_sampler(n_rows, n_columns, block_rows=block_rows, block_columns=block_columns, seed=seed)
    block_rows, block_columns = min(block_rows, n_rows), min(block_columns, n_columns)
    row_steps, column_steps = math.ceil(n_rows / block_rows), math.ceil(n_columns / block_columns)
    assert sampler.n_steps == min(row_steps, column_steps)
    for _ in range(2):
        blocks = epoch(sampler)
        for axis, n, size, steps in ((0, n_rows, block_rows, row_steps), (1, n_columns, block_columns, column_steps)):
            # One size for all blocks, and nothing twice in one.
            assert all(len(block[axis]) == len(set(block[axis])) == size for block in blocks)
            counts = Counter(position for block in blocks for position in block[axis])
            assert set(counts) <= set(range(n))
            if steps == sampler.n_steps:  # this axis is passed: all of it once, and what fills the last block twice
                assert set(counts) == set(range(n))
                assert Counter(counts.values())[2] == steps * size - n and max(counts.values()) <= 2
            else:  # the other one is cut short
                assert max(counts.values()) == 1


@given(sizes, sizes, st.integers(1, 30), st.integers(1, 30), st.integers(0, 5))
def test_a_whole_epoch_passes_all_rows_and_all_columns(
    n_rows: int, n_columns: int, block_rows: int, block_columns: int, seed: int
) -> None:
    sampler = new_sampler(n_rows, n_columns, block_rows=block_rows, block_columns=block_columns, seed=seed, whole=True)
    block_rows, block_columns = min(block_rows, n_rows), min(block_columns, n_columns)
    assert sampler.n_steps == max(math.ceil(n_rows / block_rows), math.ceil(n_columns / block_columns))
    for _ in range(2):
        blocks = epoch(sampler)
        for axis, n, size in ((0, n_rows, block_rows), (1, n_columns, block_columns)):
            assert all(len(block[axis]) == len(set(block[axis])) == size for block in blocks)
            counts = Counter(position for block in blocks for position in block[axis])
            # All of it, and none more than once more often than another.
            assert set(counts) == set(range(n)) and max(counts.values()) - min(counts.values()) <= 1


def test_the_last_block_takes_up_from_the_start_of_the_pass() -> None:
    blocks = epoch(new_sampler(10, 1000, block_rows=4, block_columns=3))
    passed = [row for rows, _ in blocks for row in rows]
    assert len(passed) == 12
    assert sorted(passed[:10]) == list(range(10)) and passed[10:] == passed[:2]


def test_columns_can_be_the_shorter_pass() -> None:
    blocks = epoch(new_sampler(1000, 7, block_rows=4, block_columns=3))
    passed = [column for _, columns in blocks for column in columns]
    assert len(blocks) == 3 and sorted(passed[:7]) == list(range(7)) and passed[7:] == passed[:2]


@pytest.mark.parametrize("n_rows, n_columns", [(1, 1), (2, 2), (3, 3), (4, 3)])
def test_a_matrix_that_fits_into_one_block(n_rows: int, n_columns: int) -> None:
    sampler = new_sampler(n_rows, n_columns)
    assert sampler.n_steps == 1
    ((rows, columns),) = epoch(sampler)
    assert sorted(rows) == list(range(n_rows)) and sorted(columns) == list(range(n_columns))


def test_every_epoch_is_shuffled_anew_rows_and_columns_apart() -> None:
    sampler = new_sampler(20, 20, block_rows=5, block_columns=5)
    first, second = epoch(sampler), epoch(sampler)
    for axis in (0, 1):
        assert [block[axis] for block in first] != [block[axis] for block in second]
    assert [block[0] for block in first] != [block[1] for block in first]
    # No order is favoured: over many epochs every row comes first about as often.
    firsts = Counter(epoch(sampler, n_steps=1)[0][0][0] for _ in range(2000))
    assert len(firsts) == 20 and all(50 < count < 150 for count in firsts.values())


def test_the_generators_state_decides_the_epoch() -> None:
    generator = torch.Generator().manual_seed(1)
    sampler = BlockSampler([SampledAxis(torch.arange(9), 4), SampledAxis(torch.arange(8), 3)], generator=generator)
    epoch(sampler)
    state = generator.get_state()
    expected = [epoch(sampler), epoch(sampler)]
    # Neither the epochs before nor an epoch broken off leave a trace.
    epoch(sampler, n_steps=1)
    generator.set_state(state)
    assert [epoch(sampler), epoch(sampler)] == expected
    fresh_generator = torch.Generator()
    fresh = BlockSampler([SampledAxis(torch.arange(9), 4), SampledAxis(torch.arange(8), 3)], generator=fresh_generator)
    fresh_generator.set_state(state)
    assert [epoch(fresh), epoch(fresh)] == expected


def test_the_seed_decides_and_the_global_generator_is_not_touched() -> None:
    before = torch.get_rng_state()
    one, same, other = (epoch(new_sampler(20, 20, seed=seed)) for seed in (1, 1, 2))
    assert one == same != other
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_and_columns_without_entries_are_never_drawn() -> None:
    rows, columns = torch.tensor([1, 4, 5, 9, 30]), torch.tensor([0, 2, 3, 7])
    sampler = BlockSampler([SampledAxis(rows, 2), SampledAxis(columns, 2)], generator=torch.Generator().manual_seed(0))
    drawn = [block for _ in range(20) for block in epoch(sampler)]
    assert {row for block in drawn for row in block[0]} == set(rows.tolist())
    assert {column for block in drawn for column in block[1]} == set(columns.tolist())
    assert rows.tolist() == [1, 4, 5, 9, 30] and columns.tolist() == [0, 2, 3, 7]


def test_one_axis_alone() -> None:
    sampler = BlockSampler([SampledAxis(torch.arange(10), 4)], generator=torch.Generator().manual_seed(0))
    assert sampler.n_steps == 3
    sampler.begin_epoch()
    blocks = [sampler.next_block() for _ in range(3)]
    assert all(len(block) == 1 for block in blocks)
    passed = [position for (rows,) in blocks for position in rows.tolist()]
    assert sorted(passed[:10]) == list(range(10)) and passed[10:] == passed[:2]
