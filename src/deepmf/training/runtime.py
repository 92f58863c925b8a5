"""The runtime of a training with torch: device, precision, ranks and random generators.

The loop gets all of these here, so that it is the same on a CPU and a GPU, in one process and in
several."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from deepmf.nn.group import find_ranks
from deepmf.training.devices import find_device
from deepmf.training.threads import count_threads

Step = Callable[[], None]

# Steps to run before a CUDA graph is recorded, so that the libraries underneath are initialised.
_WARM_UP_STEPS = 3


class Runtime:
    """A device, a precision, and the processes that train together.

    Several processes of torch's default process group, which `torchrun` starts, train one network.
    """

    def __init__(self, device: str = "auto", precision: str = "auto") -> None:
        self.ranks = find_ranks()
        self.device = torch.device(find_device(device))
        self.is_gpu = self.device.type == "cuda"
        torch.set_num_threads(count_threads())
        self.half = precision == "half" or (precision == "auto" and self.is_gpu)

    @property
    def n_sharing(self) -> int:
        """The number of ranks that share the memory of this device: those on this machine, or on
        this GPU."""
        if self.ranks is None:
            return 1
        n_here = int(os.environ.get("LOCAL_WORLD_SIZE", self.ranks.size))
        return -(-n_here // torch.cuda.device_count()) if self.is_gpu else n_here

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which matrix products run in the chosen precision."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half)

    def capture(
        self, step: Step, generators: Iterable[torch.Generator], *, static_shapes: bool
    ) -> Step:
        """Return the step with the least overhead: on a GPU, the replay of a CUDA graph."""
        can_record = self.is_gpu and static_shapes and self.ranks is None
        return GraphStep(step, list(generators)) if can_record else step

    def agree_on(self, number: float) -> float:
        """Return the number of the first rank, so that all ranks decide alike."""
        return number if self.ranks is None else self.ranks.broadcast(number, self.device)

    def describe(self) -> str:
        """Name the device for a record of results."""
        if self.is_gpu:
            return torch.cuda.get_device_name(self.device)
        return f"CPU, {torch.get_num_threads()} threads"


def make_generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a private generator for one purpose of a seed; the global generators are never
    used."""
    state = np.random.SeedSequence([seed, *purpose.encode()]).generate_state(1, dtype=np.uint64)
    return torch.Generator(device=device).manual_seed(int(state[0]) >> 1)


class GraphStep:
    """A step as a CUDA graph: after a few plain steps, one launch replays all its kernels."""

    def __init__(self, step: Step, generators: list[torch.Generator]) -> None:
        self._step = step
        self._generators = generators
        self._graph: torch.cuda.CUDAGraph | None = None
        self._n_run = 0

    @property
    def is_recorded(self) -> bool:
        """Whether the next step replays the graph."""
        return self._graph is not None

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
            self._graph = record_graph(self._step, self._generators)
        self._graph.replay()


class GraphFunction:
    """A function of tensors as a CUDA graph: after a few plain calls, one launch replays all its
    kernels.

    Arguments have the same shapes in every call. Results are copies.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]]) -> None:
        self._function = function
        self._graph: torch.cuda.CUDAGraph | None = None
        self._arguments: list[Tensor] = []
        self._results: tuple[Tensor, ...] = ()
        self._n_run = 0

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        if self._n_run < _WARM_UP_STEPS:
            self._n_run += 1
            return self._function(*arguments)
        if self._graph is None:
            self._arguments = [argument.clone() for argument in arguments]
            self._graph = record_graph(self._run)
        for recorded, argument in zip(self._arguments, arguments, strict=True):
            recorded.copy_(argument)
        self._graph.replay()
        return tuple(result.clone() for result in self._results)

    def _run(self) -> None:
        self._results = self._function(*self._arguments)


def record_graph(step: Step, generators: Iterable[torch.Generator] = ()) -> torch.cuda.CUDAGraph:
    """Return the kernels of a step as a CUDA graph; nothing is computed yet."""
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    is_collecting = gc.isenabled()
    # if it freed the graph of an earlier fit during this recording, the recording would fail
    gc.disable()
    try:
        # Other threads may use the GPU meanwhile: without this mode, their allocations would spoil
        # the recording.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
    finally:
        if is_collecting:
            gc.enable()
    return graph
