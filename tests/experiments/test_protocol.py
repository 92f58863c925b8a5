"""Protocols: the shares of their parts, and that parts do not overlap."""

import pytest

from deepmf.data.synthetic.generator import generate
from deepmf.evaluation.problem import Problem
from deepmf.experiments.protocol import GENERATED, PROTOCOLS
from deepmf.matrix.matrix import ObservedMatrix

WHOLE = generate(400, 300, density=0.1, seed=0).matrix

# Shares of training, validation and test entries.
SHARES = {"entries": (0.75, 0.05, 0.2), "random": (0.88, 0.02, 0.1), "published": (0.75, 0.05, 0.2)}


def cells(matrix: ObservedMatrix) -> set[tuple[object, ...]]:
    return set(zip(*(part.tolist() for part in matrix.entries()), strict=True))


def problem(protocol: str, *, seed: int = 0) -> Problem:
    return PROTOCOLS[protocol](GENERATED, seed=seed, new_share=0.2)


@pytest.mark.parametrize("protocol, shares", SHARES.items())
def test_entries_are_cut_in_shares(protocol: str, shares: tuple[float, float, float]) -> None:
    found = problem(protocol)
    parts = [found.train, found.validation, found.test["I"]]
    assert [part.n_entries for part in parts] == pytest.approx([share * WHOLE.n_entries for share in shares], abs=1)
    assert set.union(*map(cells, parts)) == cells(WHOLE)
    assert sum(len(cells(part)) for part in parts) == WHOLE.n_entries
    # All rows and columns are known, and settings are chosen by what is not tested.
    assert found.extension is None and list(found.test) == list(found.choice) == ["I"]
    assert found.choice["I"] is found.validation
    assert found.train.shape == WHOLE.shape


@pytest.mark.parametrize("protocol", SHARES)
def test_the_seed_decides_the_split(protocol: str) -> None:
    one, same, other = (cells(problem(protocol, seed=seed).test["I"]) for seed in (1, 1, 2))
    assert one == same != other


def test_areas_have_new_rows_and_columns() -> None:
    found = PROTOCOLS["areas"](GENERATED, seed=0, new_share=0.1)
    assert found.train.shape == (360, 270)
    assert list(found.test) == list(found.choice) == ["I", "II", "III", "IV"]
    assert found.extension is not None


@pytest.mark.parametrize("new_share", [0.1, 0.0])
def test_areas_with_fewer_validation_entries_have_the_same_test_entries(new_share: float) -> None:
    few, plain = (PROTOCOLS[name](GENERATED, seed=3, new_share=new_share) for name in ("areas-79-1-20", "areas"))
    n_entries = few.train.n_entries + few.validation.n_entries + few.test["I"].n_entries
    assert few.train.n_entries == pytest.approx(0.79 * n_entries, abs=1)
    assert few.validation.n_entries == pytest.approx(0.01 * n_entries, abs=1)
    assert {area: cells(part) for area, part in few.test.items()} == {
        area: cells(part) for area, part in plain.test.items()
    }


def test_with_nothing_new_there_is_area_one_alone() -> None:
    found, plain = PROTOCOLS["areas"](GENERATED, seed=3, new_share=0.0), problem("entries", seed=3)
    assert found.extension is None and list(found.test) == list(found.choice) == ["I"]
    assert found.train.shape == WHOLE.shape
    for one, other in ((found.train, plain.train), (found.validation, plain.validation)):
        assert cells(one) == cells(other)
    assert cells(found.test["I"]) == cells(plain.test["I"])
