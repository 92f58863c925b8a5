"""What each effort of OrdinalDMF costs and gives: test RMSE of a published split, and seconds of the fit.

    python benchmarks/efforts.py --data ml-1m --device cpu
    python benchmarks/efforts.py --data ml-1m --device cuda --efforts normal best

Validation entries choose, and are read at test time. Prints a JSON line for each effort.
"""

import argparse
import json
import time

from workload import machine

from deepmf import OrdinalDMF
from deepmf.datasets import load_split
from deepmf.metrics import rmse_error


def main() -> None:
    """Fit each effort once, and measure it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--efforts", nargs="+", default=["quick", "normal", "best"])
    arguments = parser.parse_args()
    split = load_split(arguments.data)
    validation = split.validation if split.validation.n_entries else None
    rows, columns, values = split.test.entries()
    for effort in arguments.efforts:
        start, used = time.perf_counter(), time.process_time()
        model = OrdinalDMF(effort=effort, seed=0, device=arguments.device).fit(split.train, validation)
        seconds = {"fit_s": time.perf_counter() - start, "fit_cpu_s": time.process_time() - used}
        known = model if validation is None else model.extend(validation)
        rmse = rmse_error(known.predict(rows, columns, unknown="fallback"), values)
        line = {"benchmark": "effort", "effort": effort, "rmse": float(rmse), **seconds, "chosen": model.chosen_}
        print(json.dumps(line | vars(arguments) | machine(), default=str), flush=True)


if __name__ == "__main__":
    main()
