"""Values as codes: they behave as the array that they stand for."""

import numpy as np
import pytest

from deepmf.matrix.arrays import CodedValues, count_codes, find_codes, iterate_pieces

TABLE = np.array([0.5, 1.0, 4.5], dtype=np.float32)
CODES = np.tile(np.array([2, 0, 0, 1, 2], dtype=np.uint8), 300_000)  # two pieces


@pytest.fixture
def values() -> CodedValues:
    return CodedValues(CODES, TABLE)


def test_they_behave_as_an_array(values: CodedValues) -> None:
    plain = TABLE[CODES]
    size = CODES.size
    assert (values.size, values.shape, values.ndim, len(values), values.dtype) == (size, (size,), 1, size, plain.dtype)
    assert np.array_equal(np.asarray(values), plain)
    assert np.array_equal(values.astype(np.float64), plain.astype(np.float64))
    assert np.array_equal(values - 1, plain - 1)
    assert np.array_equal(values >= 1, plain >= 1)
    assert np.array_equal(np.abs(values), plain)
    assert (values.min(), values.max(), values.tolist()) == (0.5, 4.5, plain.tolist())
    assert values.nbytes == size


def test_what_is_picked_out_is_decoded_alone(values: CodedValues) -> None:
    assert values[0] == np.float32(4.5)
    assert values[1:3].tolist() == [0.5, 0.5]
    assert values[np.array([4, 3])].tolist() == [4.5, 1.0]
    pieces = list(iterate_pieces(values))
    assert len(pieces) == 2 and np.array_equal(np.concatenate(pieces), TABLE[CODES])


@pytest.mark.parametrize("n_levels", [1, 5, 16, 17, 200])
def test_codes_are_places_in_the_table(n_levels: int) -> None:
    table = np.cumsum(np.random.default_rng(0).random(n_levels) + 0.1)
    codes = np.random.default_rng(1).integers(0, n_levels, 1000)
    assert find_codes(table[codes], table).tolist() == codes.tolist()
    assert count_codes(codes.astype(np.uint8), n_levels).tolist() == np.bincount(codes, minlength=n_levels).tolist()
