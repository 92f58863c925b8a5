"""Random histories of writes, forgetting and restarts: every answer is finite and within the range,
and all workers give the same one."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import StartClient

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS

N_STEPS = 25
ROWS = ["r0", "r1", "Wilma", "Fred"]
COLUMNS = ["c0", "c1", "c2", "A new film", "Another"]
WEIGHTS = [1.0, 1.0, 1e-6, 0.5, 1e6]
VALUES: dict[str, list[float]] = {
    "levels": [1.0, 2.0, 3.0, 4.0, 5.0],
    "interval": [-6.0, 0.3, 2.5, 6.0, 1e3, -1e12, 1e300],
    "counts": [1.0, 3.0, 1e6],
}


@pytest.fixture(scope="module", params=VALUES)
def scale(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(scale: str) -> ALS:
    """A model of thirty rows and twelve columns, whose values follow two factors."""
    dice = np.random.default_rng(0)
    rows, columns = np.nonzero(dice.random((30, 12)) < 0.5)
    latents = dice.standard_normal((30, 2)), dice.standard_normal((12, 2))
    products = (latents[0] @ latents[1].T)[rows, columns]
    labels = [f"r{row}" for row in rows], [f"c{column}" for column in columns]
    if scale == "counts":
        matrix = ObservedMatrix.from_interactions(*labels, np.exp(products).astype(int) + 1)
    elif scale == "levels":
        values = np.clip(np.round(3 + products), 1, 5)
        matrix = ObservedMatrix.from_entries(*labels, values, Scale(levels=VALUES["levels"]))
    else:
        matrix = ObservedMatrix.from_entries(*labels, np.clip(products, -6, 6))
    return ALS(latent_size=2, epochs=4, seed=0).fit(matrix)


def draw_write(dice: np.random.Generator, values: list[float]) -> tuple[str, str, Any]:
    """Return the method, path and body of a random write."""
    row = ROWS[dice.integers(len(ROWS))]
    columns = dice.choice(COLUMNS, dice.integers(1, 4), replace=False).tolist()
    entries = [
        {
            "column": column,
            "value": float(dice.choice(values)),
            "weight": float(dice.choice(WEIGHTS)),
            "time": int(dice.integers(3)),
        }
        for column in columns
    ]
    method = str(dice.choice(["PUT", "PATCH", "PATCH", "DELETE", "forget"]))
    if method == "forget":
        entries = [{"column": column, "value": None} for column in columns]
        return "PATCH", f"/v1/rows/{row}/entries", {"entries": entries}
    body = None if method == "DELETE" else {"entries": entries}
    return method, f"/v1/rows/{row}/entries", body


def list_answers(client: TestClient, *, has_values: bool) -> Iterator[float]:
    """Yield what a service predicts for some pairs, rows and a guest."""
    if has_values:
        pairs = [{"row": row, "column": column} for row in ROWS for column in COLUMNS]
        body = {"pairs": pairs, "unknown": "nan"}
        predictions = client.post("/v1/predict", json=body).json()["predictions"]
        yield from (pair["expected"] for pair in predictions if pair["expected"] is not None)
    guest = {"history": [{"column": "c0", "value": 1}]}
    options = {"n": 20, "include_observed": True}
    for asked in (*({"row": row} for row in ROWS), guest):
        answer = client.post("/v1/recommend", json=asked | options)
        if answer.status_code == 404:  # the row is not known, or no longer
            continue
        best = sorted(answer.json()["best"], key=lambda one: str(one["column"]))
        yield from (one["expected"] for one in best)


@pytest.mark.slow
def test_histories_end_alike_on_all_workers_and_after_a_restart(
    start_client: StartClient, model: ALS, scale: str
) -> None:
    dice = np.random.default_rng(0)
    workers = [start_client(model), start_client(model)]
    low, high = find_range(model, scale)
    for step in range(N_STEPS):
        method, path, body = draw_write(dice, VALUES[scale])
        written = workers[dice.integers(2)].request(method, path, json=body)
        assert written.status_code in (200, 404, 422), written.text
        if step % 5 == 4:
            workers[1] = start_client(model)
        one, two = (
            np.array(list(list_answers(worker, has_values=scale != "counts"))) for worker in workers
        )
        assert np.all((one >= low) & (one <= high)), (step, one.min(), one.max())
        assert two == pytest.approx(one, abs=1e-5 * (high - low))


def find_range(model: ALS, scale: str) -> tuple[float, float]:
    """Return the lowest and the highest number that a service may answer."""
    if scale == "counts":
        return 0.0, 1.0  # probabilities
    values = model.entries_.train.values
    return float(values.min()), float(values.max())
