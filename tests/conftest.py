"""Set-up shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are busy at times: a slow example is not a failure. The examples are the same in every run.
settings.register_profile("deepmf", deadline=None, derandomize=True)
settings.load_profile("deepmf")


@pytest.fixture(scope="session")
def movielens() -> Path:
    """The folder with ml-1m and ml-100k, where the user has one."""
    folder = Path(os.environ.get("DEEPMF_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (folder / "ml-1m").is_dir():
        pytest.skip(f"no MovieLens data in {folder}; set DEEPMF_DATA to a folder that has it")
    return folder
