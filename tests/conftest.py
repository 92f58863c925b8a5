"""Set-up shared by all tests."""

import gc
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Matrices and networks of tests are tiny: threads would spend their time waiting for each other,
# most of all on a busy machine. Linear algebra reads this when it is first imported, and processes
# that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from hypothesis import settings
from tests.forks import give_children_default_signals
from tests.waiting import PATIENCE, wait_until

TESTS = Path(__file__).parent

pytest.register_assert_rewrite("deepmf.testing", "tests.models.contract")

# Machines are busy at times: a slow example is not a failure. The examples are the same in every
# run.
settings.register_profile("deepmf", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("deepmf"), max_examples=20)  # of make check
settings.load_profile("deepmf")

torch.set_num_threads(1)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name binary parameters by their place: compressed bytes hold the time, and workers must
    collect the same ids."""
    return argname if isinstance(val, bytes) and not val.isascii() else None


# Files that take ten seconds of a core and more, the longest first: no worker is busy with one at
# the end, while the other has nothing to do.
LONG_FILES = [
    "test_docs.py",
    "nn/test_parallel.py",
    "sklearn/test_imputer.py",
    "serve/test_server.py",
    "models/ordinal/test_model.py",
    "models/paper/test_autorec.py",
    "cli/test_process.py",
    "models/test_bayesian.py",
    "cli/test_demo.py",
    "cli/test_app.py",
    "serve/test_page.py",
    "models/test_loading.py",
    "models/test_described_models.py",
    "test_wheel.py",
    "serve/test_schemas.py",
    "test_fuzz.py",
    "serve/test_routes.py",
    "experiments/test_run.py",
    "report/test_page.py",
    "report/test_browser.py",
]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector: it would scan thousands of tests and modules again and
    again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    places = {TESTS / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session", autouse=True)
def signals() -> None:
    """Not in the process that starts the workers: with nohup, a closed terminal ends none of them
    before its tests."""
    give_children_default_signals()


@pytest.fixture(scope="session")
def movielens() -> Path:
    """The folder with ml-1m and ml-100k, where the user has one."""
    folder = Path(os.environ.get("DEEPMF_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (folder / "ml-1m").is_dir():
        pytest.skip(f"no MovieLens data in {folder}; set DEEPMF_DATA to a folder that has it")
    return folder


StartService = Callable[..., str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; tests are skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("there is no chromium here")
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync"
    )
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(
            executable_path=program, args=flags.split(), timeout=1000 * PATIENCE
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def start_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartService]:
    """Serve models on free ports of this machine, each with a database of its own; all are stopped
    at the end."""
    import uvicorn

    from deepmf.serve import Service, create_app, open_database
    from deepmf.serve.service import ServiceLimits

    patient = ServiceLimits(seconds=PATIENCE, database_seconds=PATIENCE)
    running = []

    def start(model: Any, **named: Any) -> str:
        database = open_database(str(tmp_path_factory.mktemp("database") / "entries.sqlite"))
        app = create_app(Service(model, database, limits=patient), **named)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        wait_until(lambda: server.started, between=0.01)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join()


# Two small recipes on generated data.
MEANS = """
title = "shrunk means"
model = "means"
data = "generated"
protocol = "areas"
new_shares = [0.2, 0.1]
seeds = [0, 1]
source = "a paper"

[search]
shrinkage = [1, 1000]

[published]
I = { rmse = 0.9 }
IV = { rmse = 1.0 }
"""
DMFD = """
title = "DMF-D"
model = "dmf-d"
data = "generated"
protocol = "entries"
seeds = [0, 1]
joined = true

[settings]
hidden_sizes = [8]
latent_size = 4
dropout = 0.1
epochs = 6
validate_every = 2
device = "cpu"

[quick]
epochs = 2
"""


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of recipes, with one table of two rows; results are of the commit `abc`."""
    folder = tmp_path / "recipes"
    (folder / "small").mkdir(parents=True)
    (folder / "small" / "table.toml").write_text(
        'title = "A small table"\nmetrics = ["rmse"]\nremarks = ["remark"]\n'
    )
    (folder / "small" / "1-means.toml").write_text(MEANS)
    (folder / "small" / "2-dmf-d.toml").write_text(DMFD)
    monkeypatch.setattr("deepmf.experiments.recipe.FOLDER", folder)
    monkeypatch.setenv("DEEPMF_COMMIT", "abc")
    return folder
