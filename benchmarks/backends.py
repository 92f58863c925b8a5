"""An iteration of the sampler by numpy and by torch on one CPU thread: which library wins, by size.

Prints CPU milliseconds and their ratio. Run it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time

from deepmf.datasets import generate
from deepmf.linalg.backend import NUMPY, Backend
from deepmf.matrix.entries import EntryStore
from deepmf.models.gibbs.chain import GibbsSampler, Units

# rows, columns, density, latent size
SIZES = [(100, 60, 0.2, 4), (400, 150, 0.1, 8), (943, 1682, 0.06, 16), (6000, 3700, 0.04, 16)]


def time_iterations(sampler: GibbsSampler, *, count: int) -> float:
    """Return the CPU milliseconds of an iteration."""
    sampler.start()
    sampler.iterate(0)
    start = time.process_time()
    for epoch in range(1, count + 1):
        sampler.iterate(epoch)
    return (time.process_time() - start) / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=12)
    count = parser.parse_args().iterations
    print("| rows x columns | entries | latent size | numpy, ms | torch, ms | numpy / torch |")
    print("| --- | --- | --- | --- | --- | --- |")
    for n_rows, n_columns, density, size in SIZES:
        matrix = generate(n_rows, n_columns, density=density, seed=0).matrix
        entries, units = EntryStore.of(matrix), Units.of(matrix)
        numpy_ms, torch_ms = (
            time_iterations(
                GibbsSampler(entries, units, latent_size=size, seed=0, backend=backend), count=count
            )
            for backend in (NUMPY, Backend("torch"))
        )
        print(
            f"| {n_rows:,} x {n_columns:,} | {matrix.n_entries:,} | {size} | {numpy_ms:.1f} "
            f"| {torch_ms:.1f} | {numpy_ms / torch_ms:.2f} |"
        )


if __name__ == "__main__":
    main()
