"""A file that is cut off while it is mapped: a sentence and an exit status, wherever the signal comes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import deepmf

CUT = """
import sys, threading
import numpy as np
from deepmf.cli.signals import telling_of_cut_files
path, where = sys.argv[1:]
np.zeros(1 << 22, dtype=np.float32).tofile(path)
array = np.memmap(path, dtype=np.float32, mode="r")
with telling_of_cut_files():
    open(path, "r+b").truncate(4096)
    if where == "torch":
        import torch, warnings
        warnings.simplefilter("ignore")
        torch.set_num_threads(4)
        print(torch.from_numpy(np.asarray(array)).sum())
    elif where == "thread":
        thread = threading.Thread(target=lambda: print(array.sum()))
        thread.start()
        thread.join()
    else:
        print(array.sum())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
@pytest.mark.parametrize("where", ["main", "thread", "torch"])
def test_a_file_that_is_cut_off_while_it_is_read(tmp_path: Path, where: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CUT, str(tmp_path / "array"), where],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(Path(deepmf.__file__).parents[1])},
    )
    assert ended.returncode == 2, ended
    assert ended.stderr.startswith("deepmf: ") and "shorter" in ended.stderr and ended.stderr.count("\n") == 1
