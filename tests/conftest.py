"""Set-up shared by all tests."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

pytest.register_assert_rewrite("tests.models.contract")

# Machines are busy at times: a slow example is not a failure. The examples are the same in every run.
settings.register_profile("deepmf", deadline=None, derandomize=True)
settings.load_profile("deepmf")

# Networks in tests are tiny: two threads would spend their time waiting for each other, most of all on a busy machine.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def movielens() -> Path:
    """The folder with ml-1m and ml-100k, where the user has one."""
    folder = Path(os.environ.get("DEEPMF_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (folder / "ml-1m").is_dir():
        pytest.skip(f"no MovieLens data in {folder}; set DEEPMF_DATA to a folder that has it")
    return folder
