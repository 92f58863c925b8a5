"""The runtime a training runs on: its device, its precision, and how a step is repeated on it.

The loop asks for everything here, so that it is the same on a CPU and on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import numpy as np
import torch

from deepmf.errors import DeviceUnavailable

Step = Callable[[], None]

# Steps that run one by one before a graph is recorded, so that the libraries underneath are set up.
_WARM_UP_STEPS = 3


class Runtime:
    """A device with a precision; `generator` belongs to it."""

    def __init__(self, device: str = "auto", precision: str = "auto") -> None:
        has_gpu = torch.cuda.is_available()
        if device == "cuda" and not has_gpu:
            raise DeviceUnavailable("device 'cuda' was requested, but torch sees no GPU here; device='cpu' would work")
        self.device = torch.device("cuda" if device != "cpu" and has_gpu else "cpu")
        self.is_gpu = self.device.type == "cuda"
        self.half = precision == "half" or (precision == "auto" and self.is_gpu)

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which matrix products run in the chosen precision."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half)

    def generator(self, seed: int, purpose: str) -> torch.Generator:
        """Return a private generator on the device for one purpose of one seed."""
        return private_generator(seed, purpose, self.device)

    def capture(self, step: Step, generators: Iterable[torch.Generator], *, static_shapes: bool) -> Step:
        """Return a step that does the same with the least overhead: on a GPU, the replay of a recorded graph."""
        return _Replayed(step, list(generators)) if self.is_gpu and static_shapes else step

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
            self._graph = torch.cuda.CUDAGraph()
            for generator in self._generators:
                self._graph.register_generator_state(generator)
            with torch.cuda.graph(self._graph):
                self._step()
        self._graph.replay()
