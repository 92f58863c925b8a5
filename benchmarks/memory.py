"""Peak memory of fitting a matrix the size of MovieLens-1M on a CPU at 2048 -> 1024, above importing torch.

Target: at most 1.5 GB. Two epochs, with validation, in a process of its own.
"""

import json
import resource

from workload import machine, ml_1m

from deepmf.data import split_entries
from deepmf.models.dmf import DMF


def peak_megabytes() -> float:
    """Return the largest amount of memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Fit, and print what it took."""
    after_import = peak_megabytes()
    name, matrix = ml_1m()
    split = split_entries(matrix, seed=0)
    DMF(epochs=2, validate_every=1, device="cpu").fit(split.train, split.validation)
    peak = peak_megabytes()
    print(f"{name}\n{'after importing torch MB':>26}{'peak MB':>10}{'difference MB':>15}")
    print(f"{after_import:>26.0f}{peak:>10.0f}{peak - after_import:>15.0f}")
    result = {
        "benchmark": "memory",
        "after_import_mb": round(after_import),
        "peak_mb": round(peak),
        "difference_mb": round(peak - after_import),
        "data": name,
    }
    print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
