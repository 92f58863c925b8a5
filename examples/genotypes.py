"""Genotype imputation: fill in missing allele counts (0, 1 or 2) and compare them with the truth.

Chromosomes are generated as mosaics of a few ancestral ones, so that neighbouring markers are correlated.
"""

import numpy as np
import numpy.typing as npt

from deepmf import Means, ObservedMatrix, OrdinalDMF, Scale

N_SAMPLES, N_MARKERS, N_ANCESTORS, REGION = 500, 120, 5, 30
MISSING = 0.2


def generate_genotypes(seed: int) -> npt.NDArray[np.float64]:
    """Return true genotypes, (samples, markers): in each region a sample has two of the ancestral chromosomes."""
    dice = np.random.default_rng(seed)
    ancestors = dice.random((N_ANCESTORS, N_MARKERS)) < dice.uniform(0.2, 0.6, N_MARKERS)
    counts = np.zeros((N_SAMPLES, N_MARKERS))
    for start in range(0, N_MARKERS, REGION):
        region = slice(start, start + REGION)
        for _ in range(2):
            counts[:, region] += ancestors[dice.integers(N_ANCESTORS, size=N_SAMPLES), region]
    return counts


def main() -> None:
    """Hide a fifth of the calls, learn from the others, and count how many are imputed correctly."""
    true = generate_genotypes(seed=0)
    missing = np.random.default_rng(1).random(true.shape) < MISSING
    calls = ObservedMatrix.from_array(
        np.where(missing, np.nan, true),
        Scale(levels=[0, 1, 2]),
        row_labels=[f"sample {number}" for number in range(N_SAMPLES)],
        column_labels=[f"marker {number}" for number in range(N_MARKERS)],
    )
    print(calls)
    model = OrdinalDMF(effort="quick", seed=0, device="cpu", presence=None).fit(calls)
    means = Means().fit(calls)

    predicted = {"means": means.complete(), "OrdinalDMF": model.complete()}
    filled = {name: calls.scale.nearest_level(values) for name, values in predicted.items()}
    shown = ", ".join(
        f"{name} {np.mean(done[missing] == true[missing]):.3f}" for name, done in filled.items()
    )
    print(f"share of {missing.sum()} missing calls imputed correctly: {shown}")
    most_frequent = np.unique(true[missing], return_counts=True)[1].max() / missing.sum()
    print(f"(the most frequent genotype everywhere: {most_frequent:.3f})")
    print(f"shares of members: {model.chosen_['members']}")


if __name__ == "__main__":
    main()
