"""The core on Windows: without fcntl, resource and the signals of Unix. Other packages are imported
before."""

import subprocess
import sys
from pathlib import Path

import pytest

DISGUISE = """
import importlib, os, pkgutil, signal, sys
import deepmf

def import_all():
    for module in pkgutil.walk_packages(deepmf.__path__, "deepmf."):
        if module.name not in ("deepmf.__main__", "deepmf.testing"):
            importlib.import_module(module.name)

import_all()
for name in [name for name in sys.modules if name.partition(".")[0] == "deepmf"]:
    del sys.modules[name]
sys.platform = "win32"
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGBUS", "SIGKILL"):
    delattr(signal, name)
del os.sched_getaffinity
os.process_cpu_count = os.cpu_count  # from Python 3.13 on, it asks for the affinity
import deepmf
"""


def run_in_disguise(code: str, folder: Path) -> str:
    shown = subprocess.run(
        [sys.executable, "-c", DISGUISE + code], cwd=folder, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


@pytest.mark.slow
def test_every_module_can_be_imported(tmp_path: Path) -> None:
    code = """
import_all()
from deepmf.experiments.run import measure_peak_memory_mb
print(measure_peak_memory_mb())
"""
    assert run_in_disguise(code, tmp_path) == "0\n"


@pytest.mark.slow
def test_a_file_is_read_a_model_fitted_saved_replaced_and_loaded(tmp_path: Path) -> None:
    lines = "".join(
        f"{row},{column},{1 + row * column % 5}\n" for row in range(12) for column in range(9)
    )
    (tmp_path / "ratings.csv").write_text("user,film,stars\n" + lines)
    code = """
from deepmf import ALS, load, read_matrix
from deepmf.data.packing import pack
ratings = read_matrix("ratings.csv")
model = ALS(latent_size=2, seed=0).fit(ratings)
for _ in range(2):
    model.save("model.safetensors")
pack("ratings.csv", "ratings.store")
again = load("model.safetensors")
assert again.recommend(3, n=2).labels.tolist() == model.recommend(3, n=2).labels.tolist()
print(read_matrix("ratings.store").n_entries)
"""
    assert run_in_disguise(code, tmp_path) == "108\n"
