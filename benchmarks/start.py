"""What commands take from start to end on a small file: CPU seconds and the most memory.

The floor is a process that imports numpy, scipy.sparse and scipy.linalg. Targets: a command for one
of six models at most 2.2 floors and .3 s, and 130 MB; `deepmf --help` at most .3 s; `from deepmf
import ALS` at most the floor and .2 s; the service is ready after 3.5 s, with at most 200 MB.
Prints a table and a JSON line. Run it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

MODELS = {
    "Means": "",
    "ALS": "epochs=3, seed=0",
    "BayesianMF": "epochs=30, burn_in=10, samples=4, seed=0",
    "OrdinalDMF": "epochs=2, effort='normal', seed=0, device='cpu'",
    "DMF": "epochs=2, seed=0, device='cpu'",
    "DMFD": "epochs=2, seed=0, device='cpu'",
}

# Writes the files in a process of its own: this one stays light, and so are its children.
WRITE = """
from deepmf import {name}
from deepmf.datasets import generate

matrix = generate(400, 150, density=0.1, seed=0).matrix
rows, columns = matrix.row_labels, matrix.column_labels
{name}({settings}).fit(matrix).save("{name}.safetensors")
pairs = [(rows[at], columns[at]) for at in range(50)]
new = [("new", columns[at], 1 + at % 5) for at in range(20)]
for name, lines in {{
    "pairs": [("row", "column"), *pairs],
    "test": [("row", "column", "value"), *((*pair, 1 + at % 5) for at, pair in enumerate(pairs))],
    "new": [("row", "column", "value"), *new],
}}.items():
    with open(name + ".csv", "w") as file:
        file.writelines(",".join(map(str, line)) + "\\n" for line in lines)
"""

COMMANDS = {
    "inspect": "inspect {name}.safetensors",
    "predict": "predict {name}.safetensors pairs.csv",
    "recommend": "recommend {name}.safetensors --extend new.csv --row new",
    "evaluate": "evaluate {name}.safetensors test.csv",
}


class Cost(NamedTuple):
    """What a process took: CPU seconds, and the most memory that it had, in MB."""

    seconds: float
    megabytes: float


# Bytecode is kept, as an installed package has it.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


def measure(folder: Path, *arguments: str, repeats: int) -> Cost:
    """Run Python with some arguments in a folder, several times; return the smallest costs."""
    costs = []
    for _ in range(repeats):
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, stdout=subprocess.DEVNULL, env=ENVIRONMENT
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        costs.append(Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024))
    return Cost(
        round(min(cost.seconds for cost in costs), 2), round(min(cost.megabytes for cost in costs))
    )


def start_service(folder: Path, name: str) -> Cost:
    """Serve a model; return the wall time until it is ready, and its memory then."""
    words = f"-m deepmf serve {name}.safetensors --port 0 --json --log-level warning".split()
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *words], cwd=folder, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seconds = time.perf_counter() - start
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.send_signal(signal.SIGTERM)
    return Cost(round(seconds, 2), round(int(status.split("VmRSS:")[1].split()[0]) / 1024))


def main() -> None:
    """Measure the floor, imports, commands and the service."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        costs = {
            "floor": measure(
                folder, "-c", "import numpy, scipy.sparse, scipy.linalg", repeats=repeats
            ),
            "from deepmf import ALS": measure(
                folder, "-c", "from deepmf import ALS", repeats=repeats
            ),
            "deepmf --help": measure(folder, "-m", "deepmf", "--help", repeats=repeats),
        }
        for name, settings in MODELS.items():
            measure(folder, "-c", WRITE.format(name=name, settings=settings), repeats=1)
            for command, words in COMMANDS.items():
                costs[f"{command}, {name}"] = measure(
                    folder, "-m", "deepmf", *words.format(name=name).split(), repeats=repeats
                )
        costs["serve, OrdinalDMF (wall time)"] = start_service(folder, "OrdinalDMF")
    print(f"{'':<32}{'seconds':>10}{'floors':>10}{'MB':>10}")
    for what, cost in costs.items():
        floors = cost.seconds / costs["floor"].seconds
        print(f"{what:<32}{cost.seconds:>10.2f}{floors:>10.1f}{cost.megabytes:>10.0f}")
    print(json.dumps({"benchmark": "start", "costs": costs}))


if __name__ == "__main__":
    main()
