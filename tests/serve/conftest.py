"""A small model behind the service, in this process and without a network."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from deepmf.data.synthetic.generator import generate
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.als import ALS
from deepmf.models.model import Model
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.serve.application import create_app
from deepmf.serve.database import open_database
from deepmf.serve.entry_database import EntryDatabase
from deepmf.serve.service import Service

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The service shows no warnings of the library; pytest would make errors of them."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::deepmf.errors.NothingObserved"))


@pytest.fixture(scope="session")
def ratings() -> ObservedMatrix:
    return generate(60, 40, density=0.3, seed=0).matrix


@pytest.fixture(scope="session")
def als(ratings: ObservedMatrix) -> ALS:
    return ALS(latent_size=4, seed=0).fit(ratings)


@pytest.fixture(scope="session")
def ordinal(ratings: ObservedMatrix) -> OrdinalDMF:
    settings: dict[str, Any] = {"hidden_sizes": (16,), "latent_size": 4, "epochs": 3, "views": 2, "device": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OrdinalDMF(seed=0, **settings).fit(ratings)


Started = Callable[..., TestClient]


@pytest.fixture
def started(tmp_path: Path, als: ALS) -> Iterator[Started]:
    """Start a service over a model and a database; all are stopped at the end."""
    clients = []

    def start(
        model: Model | None = None, *, url: str | None = None, service: dict[str, Any] | None = None, **named: Any
    ) -> TestClient:
        database = EntryDatabase(open_database(url or str(tmp_path / "entries.sqlite")))
        app = create_app(Service(model or als, database, **service or {}), **named)
        client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client

    yield start
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(started: Started) -> TestClient:
    return started()
