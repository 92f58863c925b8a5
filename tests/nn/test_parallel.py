"""One, two and four processes with the same blocks learn the same; faults of all kinds lose nothing
that was kept."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.rank_processes import run_together
from tests.training.rank_fits import FITS, FITS_OF_FOUR, kept_fit, learned

from deepmf.training.checkpoint import remove_checkpoint

# Sums over ranks are taken in another order, and Adam magnifies rounding where gradients are near
# 0.
CLOSE = 5e-5

pytestmark = pytest.mark.slow  # starts processes

Found = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the processes leave what they find; two ranks run first, and four continue from one of
    their states."""
    folder = tmp_path_factory.mktemp("fits")
    for n_ranks in (2, 4):
        run_together(n_ranks, "tests.training.rank_fits:everything", folder)
    return folder


def found_by(folder: Path, n_ranks: int) -> list[Found]:
    return [
        torch.load(folder / f"{n_ranks}-{rank}.pt", weights_only=True) for rank in range(n_ranks)
    ]


def assert_close(found: Found, expected: Found, within: float = CLOSE) -> None:
    assert found.keys() >= expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            found[name],
            tensor,
            rtol=within,
            atol=within,
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize(
    ("n_ranks", "fit"), [*((2, fit) for fit in FITS), *((4, fit) for fit in FITS_OF_FOUR)]
)
def test_ranks_learn_what_one_process_learns(folder: Path, fit: str, n_ranks: int) -> None:
    alone = learned(FITS[fit](folder))
    first, *others = (found[fit] for found in found_by(folder, n_ranks))
    # The ranks of a chain stop their conjugate gradients at other steps.
    assert_close(first, alone, within=1e-3 if fit == "bayesian" else CLOSE)
    for other in others:  # to the bit
        assert all(torch.equal(other[name], tensor) for name, tensor in first.items())


def test_a_chain_of_ranks_that_was_killed_goes_on_as_it_would_have(folder: Path) -> None:
    for found in found_by(folder, 2):
        assert found["killed chain"].keys() == found["whole chain"].keys()
        assert all(
            torch.equal(tensor, found["whole chain"][name])
            for name, tensor in found["killed chain"].items()
        )


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_tables_and_their_states_are_divided(folder: Path, n_ranks: int) -> None:
    sizes = [found["sizes"] for found in found_by(folder, n_ranks)]
    whole = {"rows": 2 * 43 * 16, "columns": 2 * 61 * 16}
    # each table as weights, in both averages of Adam and as stepped weights
    assert len(sizes[0]) == 8
    for name in sizes[0]:
        of_ranks = [each[name] for each in sizes]
        assert sum(of_ranks) in whole.values()
        assert max(of_ranks) <= sum(of_ranks) / n_ranks + 2 * 16  # an input has two lines


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_a_rank_has_the_entries_that_its_lines_are_for(folder: Path, n_ranks: int) -> None:
    found = [each["entries"] for each in found_by(folder, n_ranks)]
    for name, n_inputs in (("rows", 43), ("columns", 61)):
        each = -(-n_inputs // n_ranks)
        for rank, entries in enumerate(found):
            assert {index // each for index in entries[name]} == {rank}
        assert sum(len(entries[name]) for entries in found) == len(found[0]["all"])


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_what_ranks_cannot_fit_together_is_refused_by_all(folder: Path, n_ranks: int) -> None:
    said = [found["refusals"] for found in found_by(folder, n_ranks)]
    assert all(each == said[0] for each in said)
    assert re.match(f"BadSetting: ALS .*{n_ranks} .*OrdinalDMF", said[0]["als"])
    assert re.match("BadSetting: gamma .*got 0.1", said[0]["gamma"])
    for name in ("entries", "clicks"):
        assert re.search("process 1 .*process 0 .*training entries", said[0][name])
    assert re.search("process 1 .*process 0 .*learning_rate", said[0]["settings"])
    few = "BadSetting: 4 processes cannot divide 3 rows x 30 columns among them; start at most 3"
    assert said[0]["few"] == (few if n_ranks == 4 else "nothing")


def test_a_stopped_training_ends_with_the_weights_it_would_have_had(folder: Path) -> None:
    for found in found_by(folder, 2):
        assert all(
            torch.equal(found["killed"][name], tensor) for name, tensor in found["ordinal"].items()
        )


def test_other_numbers_of_ranks_continue(folder: Path) -> None:
    expected = found_by(folder, 2)[0]["ordinal"]
    for found in found_by(folder, 4):
        assert_close(found["continued"], expected)
    path = folder / "for-one"
    model = kept_fit(path)
    assert model is not None
    assert_close(learned(model), expected)
    remove_checkpoint(path)
    assert not path.exists()


def test_a_full_disk_stops_nothing_and_leaves_the_last_whole_state(folder: Path) -> None:
    for found in found_by(folder, 2):
        assert len(found["full"]["said"]) == 1
        assert re.search("full .*File too large.*training continues", found["full"]["said"][0])
        assert found["full"]["there"] == [False, True, True, True]
        assert all(
            torch.equal(found["full"][name], tensor) for name, tensor in found["ordinal"].items()
        )
