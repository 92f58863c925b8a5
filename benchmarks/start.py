"""What commands take from start to end on a small file: CPU seconds and the most memory.

torch cannot be imported but where models are fitted for these. The floor is a process that imports
numpy, scipy.sparse and scipy.linalg. Targets: a command for one of six models at most 2.2 floors
and .3 s, and 130 MB; `deepmf --help` at most .3 s; `from deepmf import ALS` at most the floor and
.2 s; the service is ready after 3.5 s, with at most 200 MB.

--fits also measures whole fits, imports included: the README's first example (at most 7 s) and
`Means` of 4,000 entries (1.5 s), `DMFImputer` on 100 x 600 (8 s) and on genotypes (30 s), and ALS
with and without presence, which may take a third of the fit to MovieLens-1M, and 8 s of the fit to
8,000 columns. Data sets are looked for in DEEPMF_DATA.

Prints a table and a JSON line. Run it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
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


# Before everything else in each process: torch cannot be imported.
FORBID = """
import sys


class Forbidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Forbidden)
"""

MEANS = """
from deepmf import Means
from deepmf.datasets import generate

Means().fit(generate(400, 150, n_entries=4_000, seed=0).matrix)
"""

IMPUTER = """
import sys

import numpy as np
from deepmf.sklearn import DMFImputer

random = np.random.default_rng(5)
if sys.argv[1:]:
    table = np.load(sys.argv[1])["markers"].astype(float)
else:
    table = random.normal(size=(100, 5)) @ random.normal(size=(5, 600))
    table += 0.5 * random.normal(size=table.shape)
table[random.random(table.shape) < 0.1] = np.nan
DMFImputer(random_state=0).fit_transform(table)
"""

ALS = """
import sys

import scipy.sparse
from deepmf import ALS, ObservedMatrix
from deepmf.datasets import generate

if sys.argv[2:]:
    matrix = ObservedMatrix.from_sparse(scipy.sparse.load_npz(sys.argv[2]))
else:
    matrix = generate(6_000, 8_000, n_entries=300_000, named=False, seed=0).matrix
if sys.argv[1] != "read":
    ALS(seed=0, presence={"none": None}.get(sys.argv[1], sys.argv[1])).fit(matrix)
"""


class Cost(NamedTuple):
    """What a process took: CPU seconds, and the most memory that it had, in MB."""

    seconds: float
    megabytes: float


# Bytecode is kept, as an installed package has it.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


def forbid_torch(folder: Path) -> None:
    """Let no later process import torch."""
    (folder / "sitecustomize.py").write_text(FORBID)
    path = [str(folder), *filter(None, [ENVIRONMENT.get("PYTHONPATH")])]
    ENVIRONMENT["PYTHONPATH"] = os.pathsep.join(path)


def measure(folder: Path, *arguments: str, repeats: int) -> Cost:
    """Run Python with some arguments in a folder, several times; return the smallest costs."""
    costs = []
    for _ in range(repeats):
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
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


def measure_commands(folder: Path, repeats: int) -> dict[str, Cost]:
    """Measure the floor, imports, commands and the service."""
    for name, settings in MODELS.items():
        measure(folder, "-c", WRITE.format(name=name, settings=settings), repeats=1)
    forbid_torch(folder)
    floor = "import numpy, scipy.sparse, scipy.linalg"
    costs = {
        "floor": measure(folder, "-c", floor, repeats=repeats),
        "from deepmf import ALS": measure(folder, "-c", "from deepmf import ALS", repeats=repeats),
        "deepmf --help": measure(folder, "-m", "deepmf", "--help", repeats=repeats),
    }
    for name in MODELS:
        for command, words in COMMANDS.items():
            costs[f"{command}, {name}"] = measure(
                folder, "-m", "deepmf", *words.format(name=name).split(), repeats=repeats
            )
    return costs | {"serve, OrdinalDMF (wall time)": start_service(folder, "OrdinalDMF")}


def measure_fits(folder: Path, repeats: int) -> dict[str, Cost]:
    """Measure whole fits."""
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[:1]
    fits: dict[str, list[str]] = {
        "README's first example": [example],
        "Means, 4,000 entries": [MEANS],
        "DMFImputer, 100 x 600": [IMPUTER],
    }
    data = Path(os.environ.get("DEEPMF_DATA", "data")).absolute()
    for name, file in (("wheat", "genotypes/wheat.npz"), ("MovieLens-1M", "ml-1m/rating.npz")):
        if not (data / file).exists():
            continue
        if name == "wheat":
            fits["DMFImputer, 599 x 1,279"] = [IMPUTER, str(data / file)]
            continue
        for presence in ("read", "none", "auto"):
            fits[f"ALS, {name}, {presence}"] = [ALS, presence, str(data / file)]
    for presence in ("read", "none", "auto"):
        fits[f"ALS, 8,000 columns, {presence}"] = [ALS, presence]
    return {name: measure(folder, "-c", *words, repeats=repeats) for name, words in fits.items()}


def main() -> None:
    """Measure commands, and fits where these are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--fits", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        costs = measure_commands(folder, options.repeats)
        if options.fits:
            costs |= measure_fits(folder, options.repeats)
    print(f"{'':<32}{'seconds':>10}{'floors':>10}{'MB':>10}")
    for what, cost in costs.items():
        floors = cost.seconds / costs["floor"].seconds
        print(f"{what:<32}{cost.seconds:>10.2f}{floors:>10.1f}{cost.megabytes:>10.0f}")
    print(json.dumps({"benchmark": "start", "costs": costs}))


if __name__ == "__main__":
    main()
