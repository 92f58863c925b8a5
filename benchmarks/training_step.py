"""200 training steps on a CPU, against the plain dense float32 version of the same step in the same run.

The plain version multiplies dense vectors and uses torch's Adam as it comes. Steps of both are timed in turns of ten,
so that a busy moment hits both. Target: at least 2x faster at 2048 -> 1024 and 4x at 512 -> 256.
"""

import json
import time
from collections.abc import Iterable

import torch
from torch import Tensor
from workload import QUICK, machine, ml_1m

from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import ENCODINGS
from deepmf.models.dmf import DMF
from deepmf.training.blocks import MatrixBlocks
from deepmf.training.trainer import Adam, Optimiser, Trainer

STEPS, TURN = 20 if QUICK else 200, 10


class PlainAdam(Optimiser):
    """Torch's Adam as it comes, with the face that the trainer expects."""

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float) -> None:
        super().__init__(parameters, learning_rate)
        self._adam = torch.optim.Adam(self._parameters, lr=learning_rate)

    def _update(self, gradients: list[Tensor]) -> None:
        self._adam.step()


def trainer(matrix: ObservedMatrix, sizes: tuple[int, int], *, plain: bool) -> Trainer:
    """Return a trainer whose steps are ours, or the plain ones."""
    model = DMF(hidden_sizes=sizes[:1], latent_size=sizes[1], device="cpu")
    settings = model.settings
    source = MatrixBlocks(
        matrix,
        ENCODINGS[settings.inputs],
        block_rows=settings.block_rows,
        block_columns=settings.block_columns,
        force_dense=True if plain else None,
    )
    made = Trainer(
        model._new_network(EntryStore.of(matrix)),
        model._make_objective(matrix),
        source,
        settings,
        new_optimiser=PlainAdam if plain else Adam,
    )
    source.begin_epoch()
    for _ in range(3):
        made._train_step()
    return made


def timed_turn(made: Trainer) -> float:
    """Time some steps."""
    start = time.perf_counter()
    for _ in range(TURN):
        made._train_step()
    return time.perf_counter() - start


def main() -> None:
    """Time both sizes and print a table."""
    name, matrix = ml_1m()
    print(f"{STEPS} steps, blocks of 300 x 200, {name}\n{'sizes':<14}{'plain s':>10}{'deepmf s':>10}{'faster':>9}")
    for sizes in ((2048, 1024), (512, 256)):
        plain, ours = trainer(matrix, sizes, plain=True), trainer(matrix, sizes, plain=False)
        turns = [(timed_turn(plain), timed_turn(ours)) for _ in range(STEPS // TURN)]
        plain_seconds, our_seconds = (sum(column) for column in zip(*turns, strict=True))
        shown = f"{sizes[0]} -> {sizes[1]}"
        print(f"{shown:<14}{plain_seconds:>10.1f}{our_seconds:>10.1f}{plain_seconds / our_seconds:>8.1f}x")
        result = {
            "benchmark": "training_step",
            "sizes": sizes,
            "steps": STEPS,
            "plain_seconds": round(plain_seconds, 2),
            "deepmf_seconds": round(our_seconds, 2),
            "data": name,
        }
        print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
