"""Several real processes compute what one does: collectives and branches."""

import pytest
import torch
from tests.nn import rank_jobs
from tests.rank_processes import run_together

from deepmf.errors import BadSetting, RankLost, UserError
from deepmf.nn.group import find_ranks
from deepmf.nn.ranks import Ranks, report_lost_ranks

N_RANKS = 3

starts_processes = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, rank_jobs.Found]]:
    """What each rank has found."""
    folder = tmp_path_factory.mktemp("ranks")
    run_together(N_RANKS, "tests.nn.rank_jobs:everything", folder)
    return [
        torch.load(folder / f"{N_RANKS}-{rank}.pt", weights_only=True) for rank in range(N_RANKS)
    ]


@starts_processes
@pytest.mark.parametrize("n_lines", rank_jobs.LINES)
def test_gather_puts_lines_together(found: list[dict[str, rank_jobs.Found]], n_lines: int) -> None:
    for each in found:
        assert each["collectives"][f"lines.{n_lines}"].flatten().tolist() == list(
            range(2 * n_lines)
        )


@starts_processes
def test_a_total_of_parts_has_the_gradients_of_all_parts(
    found: list[dict[str, rank_jobs.Found]],
) -> None:
    # 2 (1 + 2 + 3) (1 + 10 + 100), squared, plus 2
    for each in found:
        assert each["collectives"]["total"].item() == 2.0 * 6 * 111
        assert each["collectives"]["total.line"].item() == pytest.approx(
            2.0 * 2 * 6 * 111 * 2 * 111
        )
        assert each["collectives"]["total.weight"].item() == pytest.approx(
            2.0 * 2 * 6 * 111 * 6 * 111 + 1
        )


@starts_processes
def test_small_collectives(found: list[dict[str, rank_jobs.Found]]) -> None:
    for each in found:
        assert each["collectives"]["sum"].tolist() == [6.0]
        assert each["collectives"]["of_first"].item() == 0.0
        assert each["collectives"]["collected"].tolist() == [0, 1, 2]


@starts_processes
@pytest.mark.parametrize("job", ["sparse", "dense"])
def test_layers_compute_what_one_process_does(
    found: list[dict[str, rank_jobs.Found]], job: str
) -> None:
    alone = rank_jobs.branch(None, dense=job == "dense")
    for each in found:
        assert each[job].keys() == alone.keys()
        for name, tensor in alone.items():
            torch.testing.assert_close(
                each[job][name],
                tensor,
                rtol=1e-4,
                atol=1e-4,
                msg=lambda text, n=name: f"{n}: {text}",
            )


def test_lines_are_divided_in_order() -> None:
    assert [Ranks(rank, 4).find_lines(5) for rank in range(4)] == [
        slice(0, 2),
        slice(2, 4),
        slice(4, 5),
        slice(5, 5),
    ]


def test_one_process_alone_has_no_ranks() -> None:
    assert find_ranks() is None


def test_a_lost_rank_is_said_in_a_sentence() -> None:
    with pytest.raises(RankLost, match="closed") as caught, report_lost_ranks():
        raise RuntimeError("[/gloo/pair.cc:537] Connection closed. Look into logs.\nMore")
    assert isinstance(caught.value, UserError)
    with pytest.raises(BadSetting), report_lost_ranks():  # what the user can mend stays what it is
        raise BadSetting("no")
