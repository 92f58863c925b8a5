"""The settings of OrdinalDMF, and how `fit` chooses them for a matrix, a machine and an effort."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, ClassVar, NamedTuple

from deepmf.training.settings import (
    EFFORTS,
    RECOMMENDATION,
    WIDEST,
    RecommendationSettings,
    TwoBranchSettings,
    setting,
    settings_dataclass,
)


class Facts(NamedTuple):
    """What settings are chosen by."""

    n_rows: int
    n_columns: int
    n_entries: int
    on_gpu: bool


class Effort(NamedTuple):
    """What an effort spends on a machine; passes and iterations are those for many entries, and the
    most for few."""

    networks: int  # 0: the sampler alone
    width: int  # of each
    dropout: float  # for `_USUAL_ENTRIES`
    passes: tuple[int, int]  # of training over all entries
    most_blocks: int  # the steps of a pass, so long as each has `_ENTRIES_A_STEP`
    views: int
    landmarks: int
    iterations: tuple[int, int]  # of the sampler, for `_USUAL_ENTRIES` and fewer


_ON_CPU = {
    "quick": Effort(
        0, 16, 0.0, passes=(0, 0), most_blocks=9, views=1, landmarks=1, iterations=(60, 240)
    ),
    "normal": Effort(
        1, 128, 0.1, passes=(3, 6), most_blocks=100, views=4, landmarks=64, iterations=(120, 400)
    ),
    "best": Effort(
        1, 128, 0.1, passes=(20, 25), most_blocks=25, views=8, landmarks=128, iterations=(240, 400)
    ),
}

_ON_GPU = {
    "quick": Effort(
        1, 512, 0.3, passes=(8, 8), most_blocks=50, views=8, landmarks=128, iterations=(150, 300)
    ),
    "normal": Effort(
        4,
        512,
        0.4,
        passes=(25, 25),
        most_blocks=64,
        views=16,
        landmarks=1024,
        iterations=(300, 400),
    ),
    "best": Effort(
        8,
        512,
        0.4,
        passes=(50, 50),
        most_blocks=64,
        views=32,
        landmarks=1024,
        iterations=(800, 800),
    ),
}

# Up to this many entries there are most passes, above ever fewer.
_FEW_ENTRIES = 100_000

# A pass has at least this many steps.
_FEWEST_BLOCKS = 9

# Batch norm needs some vectors for its statistics.
_LEAST_BLOCK = 100

# A block has about this many entries, unless that makes too many or too few blocks.
_ENTRIES_A_STEP = 3000

# A matrix of this many entries takes the dropout of the effort; fewer take more of it, by a power.
_USUAL_ENTRIES, _DROPOUT_POWER, _MOST_DROPOUT = 700_000, 0.29, 0.6

# The step size that suits a schedule of this many steps; fewer take larger ones.
_STEP_SIZE, _STEPS, _STEP_POWER, _LARGEST_STEP = 2e-3, 16_000, 0.37, 1e-2

# The most bytes that first layers may take in training, on a CPU and on a GPU, and those of a
# weight: itself, its gradient and two averages of Adam's.
_MOST_BYTES, _BYTES_A_WEIGHT = {False: 512 << 20, True: 2 << 30}, 16

# Above this many entries, where the sampler leaves ever less to explain, passes fall by this
# power of their number, and views by its root.
_MANY_ENTRIES, _PASSES_POWER, _FEWEST_VIEWS = 1_000_000, 0.75, 4

# Above this many entries, which come with many rows and columns to store, landmarks and samples of
# the sampler are fewer: at most these.
_LARGE, _MOST_LANDMARKS, _MOST_SAMPLES = 3_000_000, 512, 20

# Iterations of the sampler are inverse to the root of the entries, but no fewer than this share of
# the effort's.
_LEAST_SHARE = 0.5

# Samples of the sampler, and how often the validation error is computed, on a CPU and on a GPU.
_SAMPLES = 32
_VALIDATIONS = {False: 4, True: 12}


def choose_settings(facts: Facts, effort: str, *, epochs: int | None = None) -> dict[str, Any]:
    """Return the settings for a matrix on a machine; those of the schedule suit the epochs, where
    these are given.

    A pass over the entries costs the less the fewer blocks it is cut into, as every block reads all
    entries of its rows and columns. Few entries are passed over often, as steps on them cost
    little. More entries need less dropout, and fewer views, landmarks and samples. Very long rows
    and columns are read by fewer and narrower networks, so that memory is bounded.

    >>> chosen = choose_settings(Facts(6040, 3706, 712_648, on_gpu=True), "normal")
    >>> chosen["networks"], chosen["hidden_sizes"], chosen["block_rows"], chosen["block_columns"]
    (4, (512,), 755, 464)
    >>> choose_settings(Facts(22_000, 296_000, 830_000, on_gpu=False), "normal")["hidden_sizes"]
    (52,)
    """
    spent = (_ON_GPU if facts.on_gpu else _ON_CPU)[effort]
    most_weights = _MOST_BYTES[facts.on_gpu] // _BYTES_A_WEIGHT
    widths = min(
        max(1, spent.networks) * spent.width,
        max(16, most_weights // (2 * (facts.n_rows + facts.n_columns))),
    )
    networks = min(spent.networks, max(1, widths // spent.width))
    width = widths // max(1, networks)
    blocks = min(max(facts.n_entries / _ENTRIES_A_STEP, _FEWEST_BLOCKS), spent.most_blocks)
    block_rows, block_columns = _block(facts, blocks)
    steps_an_epoch = max(-(-facts.n_rows // block_rows), -(-facts.n_columns // block_columns))
    fewer = _FEW_ENTRIES / max(facts.n_entries, _FEW_ENTRIES)
    many = _MANY_ENTRIES / max(facts.n_entries, _MANY_ENTRIES)
    passes = max(spent.passes[0], fewer * spent.passes[1]) * many**_PASSES_POWER
    epochs = epochs or max(1, round(passes * blocks / steps_an_epoch))
    dropout = spent.dropout * (_USUAL_ENTRIES / facts.n_entries) ** _DROPOUT_POWER
    step_size = _STEP_SIZE * (_STEPS / (epochs * steps_an_epoch)) ** _STEP_POWER
    views = spent.views * math.sqrt(many)
    share = max(math.sqrt(_USUAL_ENTRIES / facts.n_entries), _LEAST_SHARE)
    iterations = min(round(share * spent.iterations[0]), spent.iterations[1])
    landmarks, samples = spent.landmarks, _SAMPLES
    if facts.n_entries > _LARGE:
        landmarks, samples = min(landmarks, _MOST_LANDMARKS), min(samples, _MOST_SAMPLES)
    return {
        "hidden_sizes": (width,),
        "latent_size": min(64, width),
        "dropout": round(min(dropout, _MOST_DROPOUT), 2),
        "networks": networks,
        "block_rows": block_rows,
        "block_columns": block_columns,
        "epochs": epochs,
        "validate_every": max(1, epochs // _VALIDATIONS[facts.on_gpu]),
        "patience": max(1, epochs // 3),
        "learning_rate": round(min(step_size, _LARGEST_STEP), 5),
        "views": max(min(_FEWEST_VIEWS, spent.views), round(views)),
        "landmarks": landmarks,
        "linear_iterations": iterations,
        "linear_samples": samples,
    }


def _block(facts: Facts, blocks: float) -> tuple[int, int]:
    """Return the rows and columns of a block, so that one of some holds its share of the entries.

    The same share of rows and columns, unless one side is so short that its share would be too few.
    """
    share = 1.0 / math.sqrt(blocks)
    rows = min(max(share * facts.n_rows, _LEAST_BLOCK), facts.n_rows)
    columns = min(max(share * facts.n_columns, _LEAST_BLOCK), facts.n_columns)
    rows = min(max(facts.n_rows * facts.n_columns / (blocks * columns), _LEAST_BLOCK), facts.n_rows)
    columns = min(
        max(facts.n_rows * facts.n_columns / (blocks * rows), _LEAST_BLOCK), facts.n_columns
    )
    return _even_out(facts.n_rows, rows), _even_out(facts.n_columns, columns)


def _even_out(n_vectors: int, size: float) -> int:
    """Return a size of about some vectors by which blocks divide all of them evenly, so that none
    is much smaller.

    >>> _even_out(943, 187.4)
    189
    """
    n_blocks = min(round(n_vectors / size), n_vectors // _LEAST_BLOCK)
    return max(2, math.ceil(n_vectors / max(1, n_blocks)))


@settings_dataclass
class OrdinalDMFSettings(TwoBranchSettings, RecommendationSettings):
    """The settings of OrdinalDMF."""

    chosen_at_fit: ClassVar[Collection[str]] = (
        *choose_settings(Facts(2, 2, 4, on_gpu=False), EFFORTS[0]),
        *RECOMMENDATION,
    )

    effort: str = setting(
        "normal",
        "Time to spend on accuracy; it decides every setting that is chosen at fit.",
        choices=EFFORTS,
    )
    epochs: int = 300
    validate_every: int = 20
    learning_rate: float = 2e-3
    hidden_sizes: tuple[int, ...] = (1024,)
    latent_size: int = 256
    dropout: float = 0.7
    networks: int = setting(
        1,
        "Number of networks in the ensemble; their scores are averaged (0: the sampler alone).",
        low=0,
        high=256,
    )
    mask_rate: float = setting(
        0.6,
        "Share of the entries that each step masks from both branches and predicts.",
        above=0.0,
        high=0.95,
    )
    cold_row_rate: float = setting(
        0.0625,
        "Share of rows that each step masks further, up to completely, to train for rows with few entries.",
        low=0.0,
        high=1.0,
    )
    cold_column_rate: float = setting(
        0.125, "Share of columns that each step masks further, up to completely.", low=0.0, high=1.0
    )
    views: int = setting(
        16,
        "Number of masked views averaged into each latent (1: a single view of all entries).",
        low=1,
        high=WIDEST,
    )
    row_penalty: float | None = setting(
        None,
        "Ridge penalty of the refinement of row latents (none: chosen on held-out entries).",
        low=0.01,
        high=1e12,
    )
    column_penalty: float | None = setting(
        None,
        "Ridge penalty of the refinement of column latents (none: chosen on held-out entries).",
        low=0.01,
        high=1e12,
    )
    landmarks: int = setting(
        256, "Number of Nyström landmarks in the refinement of rows.", low=1, high=WIDEST
    )
    linear_size: int | None = setting(
        None,
        "Latent size of the sampler (0: no sampler; none: chosen, up to 16 on a CPU, 64 on a GPU).",
        low=0,
        high=WIDEST,
    )
    linear_iterations: int = setting(60, "Number of iterations of the sampler.", low=1, high=WIDEST)
    linear_samples: int = setting(
        10, "Number of samples to keep, evenly spaced after the burn-in.", low=1, high=WIDEST
    )
    neighbours: str | None = setting(
        "auto",
        "Predict a column also by the columns that are correlated with it (none: never).",
        choices=("auto",),
    )
    bins: int = setting(
        32,
        "Number of bins for values on a scale without levels; most bins have equal frequency.",
        low=2,
        high=1 << 16,
    )
