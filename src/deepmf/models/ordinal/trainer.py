"""The trainer of OrdinalDMF's network; on a GPU, the sampler is fitted beside it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from deepmf.models.members import Member, MemberFit, MemberInputs
from deepmf.training.loop import Epoch
from deepmf.training.trainer import Trainer

FitSampler = Callable[[torch.device], MemberFit | None]


class OrdinalTrainer(Trainer):
    """Trains the network; on a GPU, the sampler is fitted beside it, on the same device.

    members: those that are fitted once the network is trained.
    """

    def __init__(
        self, *given: Any, members: dict[str, Member], fit_sampler: FitSampler | None, **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self.members = members
        self._fit_sampler = fit_sampler
        self.sampler_fit: Future[MemberFit | None] | None = None

    def run_epoch(self, epoch: int) -> Epoch:
        """Take a step on every block; fit the sampler beside the epochs once no step is left to
        record."""
        outcome = super().run_epoch(epoch)
        if self.replays_steps and self.sampler_fit is None and self._fit_sampler is not None:
            self.sampler_fit = fit_beside(self._fit_sampler, self.runtime.device)
        return outcome


def fit_on_device(
    member: Member, learn: Callable[[torch.device], MemberInputs], device: torch.device
) -> MemberFit | None:
    """Fit a member on a device."""
    return member.fit(learn(device))


def fit_beside(fit: FitSampler, device: torch.device) -> Future[MemberFit | None]:
    """Fit a member in a thread and on a stream of their own.

    A network whose steps are a CUDA graph leaves the processor, and some of the GPU, to it.
    """

    def work() -> MemberFit | None:
        if device.type != "cuda":
            return fit(device)
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.no_grad(), torch.cuda.stream(stream):
            fitted = fit(device)
            stream.synchronize()
        return fitted

    threads = ThreadPoolExecutor(1, thread_name_prefix="sampler")
    try:
        return threads.submit(work)
    finally:
        threads.shutdown(wait=False)
