"""A service over very many columns: rankings become approximate once the index is built."""

import time

import pytest
from tests.serve.conftest import StartClient

from deepmf.datasets import generate
from deepmf.models.als import ALS
from deepmf.models.ranking import WANTED_RECALL
from deepmf.serve.service import ServiceLimits


@pytest.fixture(scope="module")
def wide() -> ALS:
    return ALS(latent_size=6, epochs=3, seed=0).fit(generate(150, 3000, density=0.02, seed=0).matrix)


def test_the_service_is_approximate_once_the_index_is_there(start_client: StartClient, wide: ALS) -> None:
    client = start_client(wide, service={"limits": ServiceLimits(exact_columns=1000, staleness=0.01)})
    deadline = time.monotonic() + 30
    while client.get("/v1/model").json()["recall"] is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert client.get("/v1/model").json()["recall"] >= WANTED_RECALL
    row = wide.row_labels_[0]
    exact = wide.recommend(row, 10).labels.tolist()
    found = client.post("/v1/recommend", json={"row": row, "n": 10}).json()["best"]
    assert len({one["column"] for one in found} & set(exact)) >= 9
    without = client.post("/v1/recommend", json={"row": row, "n": 10, "exclude": exact}).json()["best"]
    assert len(without) == 10
    assert not {one["column"] for one in without} & set(exact)
    # A new column that everybody likes is not in the index, and is found at once.
    fans = [{"row": other, "value": 5} for other in wide.row_labels_[1:40].tolist()]
    client.put("/v1/columns/Premiere/entries", json={"entries": fans})
    history = [{"column": exact[0], "value": 5}]
    best = client.post("/v1/recommend", json={"history": history, "n": 200}).json()["best"]
    assert "Premiere" in [one["column"] for one in best]


def test_few_columns_are_ranked_exactly(start_client: StartClient, wide: ALS) -> None:
    client = start_client(wide)
    time.sleep(0.2)
    assert client.get("/v1/model").json()["recall"] is None
