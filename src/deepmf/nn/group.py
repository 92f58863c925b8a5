"""The group of processes that train together, found without importing torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from deepmf.errors import UserError

if TYPE_CHECKING:
    from deepmf.nn.ranks import Ranks

Decision = TypeVar("Decision")


def find_ranks() -> Ranks | None:
    """Return the ranks of the process group that this process has joined; None if it trains
    alone."""
    # a process that has not loaded torch cannot have joined a group
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    from deepmf.nn.ranks import Ranks

    return Ranks(dist.get_rank(), dist.get_world_size()) if dist.get_world_size() > 1 else None


def is_first() -> bool:
    """Whether this process trains alone or is the first of several."""
    ranks = find_ranks()
    return ranks is None or ranks.index == 0


def decide_on_first(decide: Callable[[], Decision]) -> Decision:
    """Return the decision of a single process, or of the first rank; a `UserError` is raised on
    every rank."""
    ranks = find_ranks()
    if ranks is None:
        return decide()
    outcome: list[Any] = [None, None]
    if ranks.index == 0:
        try:
            outcome[0] = decide()
        except UserError as error:
            outcome[1] = type(error), str(error)
    outcome = ranks.broadcast_items(outcome)
    if outcome[1] is not None:
        kind, message = outcome[1]
        raise kind(message)
    decision: Decision = outcome[0]
    return decision
