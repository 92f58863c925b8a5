"""The runtime a training runs on: its device, its precision, its ranks, and how a step is repeated on it.

The loop asks for everything here, so that it is the same on a CPU and on a GPU, in one process and in several.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import nn

from deepmf.errors import DeviceUnavailable
from deepmf.layers.ranks import ranks_here
from deepmf.training.spread_network import SpreadNetwork

Step = Callable[[], None]

# Steps that run one by one before a graph is recorded, so that the libraries underneath are set up.
_WARM_UP_STEPS = 3


class Runtime:
    """A device with a precision, and the processes that train together; `generator` belongs to it.

    Where torch's default process group has several processes (`torchrun` starts them), they train one network.
    """

    def __init__(self, device: str = "auto", precision: str = "auto") -> None:
        has_gpu = torch.cuda.is_available()
        if device == "cuda" and not has_gpu:
            raise DeviceUnavailable("device 'cuda' was requested, but torch sees no GPU here; device='cpu' would work")
        self.ranks = ranks_here()
        self.device = torch.device("cuda" if device != "cpu" and has_gpu else "cpu")
        self.is_gpu = self.device.type == "cuda"
        if self.is_gpu and self.ranks is not None:
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        self.half = precision == "half" or (precision == "auto" and self.is_gpu)

    @property
    def n_sharing(self) -> int:
        """How many of the ranks share the memory of this one's device: those of one machine, or of one GPU."""
        if self.ranks is None:
            return 1
        n_here = int(os.environ.get("LOCAL_WORLD_SIZE", self.ranks.size))
        return -(-n_here // torch.cuda.device_count()) if self.is_gpu else n_here

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which matrix products run in the chosen precision."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half)

    def generator(self, seed: int, purpose: str) -> torch.Generator:
        """Return a private generator on the device for one purpose of one seed."""
        return private_generator(seed, purpose, self.device)

    def capture(self, step: Step, generators: Iterable[torch.Generator], *, static_shapes: bool) -> Step:
        """Return a step that does the same with the least overhead: on a GPU, the replay of a recorded graph."""
        is_recorded = self.is_gpu and static_shapes and self.ranks is None
        return _Replayed(step, list(generators)) if is_recorded else step

    def spread(self, network: nn.Module) -> SpreadNetwork | None:
        """Divide a network over the ranks; None where there is one process."""
        return None if self.ranks is None else SpreadNetwork(network, self.ranks)

    def agreed(self, number: float) -> float:
        """Return a number that every rank has computed as the first rank has it, so that all decide alike."""
        return number if self.ranks is None else self.ranks.of_first(number, self.device)

    def describe(self) -> str:
        """Name the device for a record of results."""
        return torch.cuda.get_device_name(self.device) if self.is_gpu else f"CPU, {torch.get_num_threads()} threads"


def private_generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator of its own for one purpose of one seed; the global ones are never touched."""
    state = np.random.SeedSequence([seed, *purpose.encode()]).generate_state(1, dtype=np.uint64)
    return torch.Generator(device=device).manual_seed(int(state[0]) >> 1)


class _Replayed:
    """A step recorded as a CUDA graph: the first few run as they are, then one launch replays all its kernels."""

    def __init__(self, step: Step, generators: list[torch.Generator]) -> None:
        self._step = step
        self._generators = generators
        self._graph: torch.cuda.CUDAGraph | None = None
        self._n_run = 0

    def __call__(self) -> None:
        if self._graph is None and self._n_run < _WARM_UP_STEPS:
            self._n_run += 1
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._step()
            torch.cuda.current_stream().wait_stream(side)
            return
        if self._graph is None:
            # The graph of an earlier fit must not be freed by the collector in the middle of this recording, which that
            # would spoil.
            gc.collect()
            self._graph = torch.cuda.CUDAGraph()
            for generator in self._generators:
                self._graph.register_generator_state(generator)
            with torch.cuda.graph(self._graph):
                self._step()
        self._graph.replay()
