"""What a fit costs as matrices grow: seconds of a pass for each million entries, peak memory, and
error.

python benchmarks/scale.py --entries 1e6                              one size, ALS and OrdinalDMF
by default python benchmarks/scale.py --entries 1e8 --models als --sweeps 1      one sweep of ALS
python benchmarks/scale.py --entries 1e8 --models passes              passes of OrdinalDMF alone,
without what follows python benchmarks/scale.py --entries 2e7 --device cuda --checkpoint
run.checkpoint --max-seconds 300 --json out.json python benchmarks/scale.py --entries 1e8 --models
bayesian --device cuda --set presence=null torchrun --standalone --nproc-per-node 2
benchmarks/scale.py --entries 1e6 --models dmf-o --device cuda --backend gloo

Entries are generated (rank 12, noise 1) and split into 88 % for training, 2 % for validation and 10
% for the test, of which a million are predicted. `floor` is the error of the truth itself, below
which no model comes. A pass teaches as many entries as there are; an epoch of OrdinalDMF may be
less. Seconds of a pass are without validation, and on a CPU those that its threads were at work,
all together. Peak memory is that of this process (VmHWM), on a GPU that of its tensors too, from
the start of a model's fit to its end. With --checkpoint, a run that --max-seconds or a signal ends
is continued by the next. Needs torch, numpy, scipy and safetensors alone.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from workload import machine

from deepmf.datasets import Truth, generate
from deepmf.errors import DeepMFWarning
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labelled
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.training.history import EpochRecord, History
from deepmf.training.holdout import HeldOut

# Rows and columns by the number of entries: about those of MovieLens and of the Netflix prize.
SHAPES = {
    100_000: (2000, 1000),
    1_000_000: (10_000, 4000),
    3_000_000: (20_000, 8000),
    10_000_000: (70_000, 10_700),
    20_000_000: (138_000, 27_000),
    100_000_000: (480_000, 17_770),
}
RANK, NOISE, SEED = 12, 1.0, 5
VALIDATION, TEST, MOST_PREDICTED = 0.02, 0.10, 1_000_000


@dataclass(frozen=True)
class Problem:
    """A generated matrix in parts, with its truth."""

    train: ObservedMatrix
    validation: ObservedMatrix
    test: ObservedMatrix
    truth: Truth

    @property
    def floor(self) -> float:
        """The error of the truth on the test entries."""
        rows, columns, values = self.test.entries()
        return rmse_error(self.truth.mean(rows, columns), values)


def problem(n_entries: int) -> Problem:
    """Generate a matrix."""
    generated = generate(
        *SHAPES[n_entries], n_entries=n_entries, rank=RANK, noise=NOISE, named=False, seed=SEED
    )
    truth, matrix = generated.truth, generated.matrix
    row_of, column_of, values = matrix.entries()
    lot = np.random.default_rng(0).random(n_entries, dtype=np.float32)

    def part(chosen: npt.NDArray[Any]) -> ObservedMatrix:
        at_rows, at_columns = (
            Labelled(truth.rows, row_of[chosen]),
            Labelled(truth.columns, column_of[chosen]),
        )
        return ObservedMatrix.from_positions(
            at_rows, at_columns, values[chosen], scale=matrix.scale
        )

    test = np.flatnonzero(lot >= 1 - TEST)
    if test.size > MOST_PREDICTED:
        test = np.sort(np.random.default_rng(1).choice(test, MOST_PREDICTED, replace=False))
    train, validation = (
        lot < 1 - TEST - VALIDATION,
        (lot >= 1 - TEST - VALIDATION) & (lot < 1 - TEST),
    )
    return Problem(part(train), part(validation), part(test), truth)


class Peak:
    """The most memory that is held from now on."""

    def __init__(self) -> None:
        # where the system cannot begin anew, the peak is that of the whole process
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def told(self) -> dict[str, int]:
        """Return it in megabytes, on the GPU as well."""
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        found = {
            "peak_mb": next(
                int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")
            )
        }
        if torch.cuda.is_available():
            found["gpu_peak_mb"] = torch.cuda.max_memory_allocated() >> 20
        return found


class Clocks:
    """Look at clocks after each epoch; after some seconds, end the training as Ctrl-C does.

    seconds: those of the epochs, without validation where that is possible; on a CPU, which may be
        shared, those that threads were at work.
    """

    def __init__(self, limit: float | None, *, on_gpu: bool) -> None:
        self._end = None if limit is None else time.monotonic() + limit
        self._now = time.perf_counter if on_gpu else time.process_time
        self._last = self._now()
        self._all: list[tuple[float, bool]] = []

    @property
    def seconds(self) -> float:
        """Those of a typical epoch; the first, which gets ready, counts where there is no other."""
        later = self._all[1:] or self._all
        return float(
            np.median(
                [seconds for seconds, validated in later if not validated]
                or [each[0] for each in later]
            )
        )

    def __call__(self, record: EpochRecord, history: History) -> None:
        """Note an epoch."""
        before, self._last = self._last, self._now()
        self._all.append((self._last - before, record.validation_error is not None))
        if self._end is not None and time.monotonic() > self._end:
            raise KeyboardInterrupt


def measure_fit(model: Model, given: Problem, options: argparse.Namespace) -> dict[str, Any]:
    """Return what the fit of a model took, and its error."""
    peak, start = Peak(), time.perf_counter()
    clocks = Clocks(options.max_seconds, on_gpu=getattr(model, "_on_gpu", False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeepMFWarning)
        model.fit(
            given.train,
            given.validation,
            callbacks=[clocks],
            checkpoint=options.checkpoint,
            checkpoint_every=50,
            keep_checkpoint=options.checkpoint is not None,
            progress=options.progress,
        )
    seconds = time.perf_counter() - start
    rows, columns, values = given.test.entries()
    history = model.history_
    passes = passes_of_an_epoch(model, given.train)
    per_pass = clocks.seconds / passes / (given.train.n_entries / 1e6)
    found = {
        "rmse": round(rmse_error(model.predict(rows, columns), values), 4),
        "seconds": round(seconds, 1),
        "epochs_seconds": round(history.seconds or 0.0, 1),
        "pass_seconds_a_million": round(per_pass, 4),
        "passes": round(len(history) * passes, 1),
        "ended": history.stopped,
        "best_epoch": history.best_epoch,
        "validation": {name: round(error, 4) for name, error in history.stages.items()},
    }
    return found | peak.told() | {"chosen": model.chosen_}


def passes_of_an_epoch(model: Model, train: ObservedMatrix) -> float:
    """Return how many times as many entries as there are an epoch teaches."""
    if not isinstance(model, OrdinalDMF):
        return 1.0
    settings, (n_rows, n_columns) = model.settings, train.shape
    share = min(settings.block_rows / n_rows, 1.0) * min(settings.block_columns / n_columns, 1.0)
    n_steps = max(
        math.ceil(n_rows / settings.block_rows), math.ceil(n_columns / settings.block_columns)
    )
    return n_steps * share


def passes_alone(model: OrdinalDMF, given: Problem, n_passes: float) -> dict[str, Any]:
    """Return the seconds of passes (on a CPU those at work), and of a validation, without what
    follows the epochs."""
    peak = Peak()
    chosen = model._with_choice(given.train)
    chosen._check_memory(EntryStore.of(given.train))
    start = time.perf_counter()
    trainer = chosen._make_task(
        EntryStore.of(given.train), HeldOut.of(given.train, given.validation)
    )
    prepared = time.perf_counter() - start
    passes, epochs, losses = passes_of_an_epoch(chosen, given.train), [], []
    # of a CPU, which may be shared
    clock = time.perf_counter if trainer.runtime.is_gpu else time.process_time
    for epoch in range(max(2, round(n_passes / passes))):
        start = clock()
        losses.append(trainer.run_epoch(epoch).loss)  # waits for the device
        epochs.append(clock() - start)
    start = time.perf_counter()
    error = trainer.validation_error()
    per_pass = float(np.median(epochs[1:])) / passes
    return {
        "prepare_seconds": round(prepared, 1),
        "pass_seconds": round(per_pass, 2),
        "pass_seconds_a_million": round(per_pass / (given.train.n_entries / 1e6), 4),
        "validation_seconds": round(time.perf_counter() - start, 2),
        "validation_error": error,
        "losses": [round(losses[0], 4), round(losses[-1], 4)],
        "dense": trainer.source.dense,
        **peak.told(),
        "chosen": chosen.chosen_,
    }


def given_settings(pairs: list[str]) -> dict[str, Any]:
    """Return settings from name=value, values in JSON."""
    named = dict(pair.split("=", 1) for pair in pairs)
    return {name: json.loads(value) for name, value in named.items()}


def main() -> None:
    """Measure one size, and write what was found after each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--entries", type=float, default=1e6, help=", ".join(f"{n:g}" for n in SHAPES)
    )
    parser.add_argument(
        "--models",
        nargs="+",
        default=["als", "dmf-o"],
        choices=["als", "bayesian", "dmf-o", "passes"],
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--effort", default="normal")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="settings but those of ALS, in JSON",
    )
    parser.add_argument("--sweeps", type=int, default=15, help="of ALS")
    parser.add_argument(
        "--passes", type=float, default=1.0, help="how many to time with --models passes"
    )
    parser.add_argument("--max-seconds", type=float, help="end the epochs of a model after so long")
    parser.add_argument("--checkpoint", help="the file to continue OrdinalDMF from")
    parser.add_argument(
        "--backend", help="of torchrun's processes, such as gloo or cpu:gloo,cuda:nccl"
    )
    parser.add_argument("--json", type=Path, help="the file to write to")
    parser.add_argument("--progress", action="store_true")
    options = parser.parse_args()
    if options.entries not in SHAPES:
        parser.error(
            f"--entries must be one of {', '.join(f'{n:g}' for n in SHAPES)}; got {options.entries:g}"
        )
    if options.backend is not None:
        dist.init_process_group(options.backend)
    start = time.perf_counter()
    given = problem(int(options.entries))
    result: dict[str, Any] = {
        "benchmark": "scale",
        "rows": given.train.shape[0],
        "columns": given.train.shape[1],
        "entries": int(options.entries),
        "generate_seconds": round(time.perf_counter() - start, 1),
        "floor": round(given.floor, 4),
    }
    for name in options.models:
        settings = {"device": options.device} | given_settings(options.set)
        if name == "als":
            alone = argparse.Namespace(**vars(options) | {"checkpoint": None})
            result[name] = measure_fit(ALS(epochs=options.sweeps), given, alone)
        elif name == "bayesian":
            result[name] = measure_fit(BayesianMF(**settings), given, options)
        elif name == "passes":
            result[name] = passes_alone(
                OrdinalDMF(effort=options.effort, **settings), given, options.passes
            )
        else:
            result[name] = measure_fit(
                OrdinalDMF(effort=options.effort, **settings), given, options
            )
        if options.backend is not None:
            result |= {"backend": options.backend, "ranks": dist.get_world_size()}
            if dist.get_rank() > 0:
                continue
        line = json.dumps(result | machine())
        print(line, flush=True)
        if options.json is not None:
            options.json.write_text(line + "\n", encoding="utf-8")
    if options.backend is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
