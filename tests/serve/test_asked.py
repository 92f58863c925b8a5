"""The service over a model that is calibrated on asked cells: answers are for any cell, also after
writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.test_asked import draw_chosen

from deepmf import ALS, load


@pytest.mark.slow
def test_a_served_model_answers_for_any_cell(start_client: Any, tmp_path: Path) -> None:
    train, asked, test = draw_chosen(unevenness=0.8, n_asked=3000)
    ALS(seed=0).fit(train, asked=asked).save(tmp_path / "m")
    model, plain = load(tmp_path / "m"), ALS(seed=0).fit(train)
    assert model.asked_ is not None and model.asked_["column_effects"] > 0
    client, (rows, columns, values) = start_client(model), (each[:200] for each in test.entries())
    pairs = [
        {"row": row, "column": column}
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
    ]
    found = [
        each["expected"]
        for each in client.post("/v1/predict", json={"pairs": pairs}).json()["predictions"]
    ]
    np.testing.assert_allclose(found, model.predict(rows, columns), rtol=1e-5)
    assert (
        abs(np.mean(found) - values.mean())
        < 0.3
        < np.mean(plain.predict(rows, columns)) - values.mean()
    )
    best = client.post(
        "/v1/recommend", json={"row": int(rows[0]), "n": 3, "rank_by": "value"}
    ).json()["best"]
    wanted = model.recommend(rows[0], n=3, rank_by="value")
    assert [each["column"] for each in best] == wanted.labels.tolist()
    np.testing.assert_allclose([each["expected"] for each in best], wanted.values, rtol=1e-5)
    entry = {"column": best[0]["column"], "value": 5}
    assert client.patch(f"/v1/rows/{rows[0]}/entries", json={"entries": [entry]}).status_code == 200
    after = client.post("/v1/predict", json={"pairs": pairs}).json()["predictions"]
    assert abs(np.mean([each["expected"] for each in after]) - np.mean(found)) < 0.05
