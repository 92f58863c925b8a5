"""MLflow: a model saved as pyfunc predicts the pairs of a frame, and comes back with all its
methods."""

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from deepmf import Means, mlflow as flavour
from deepmf.datasets import generate
from deepmf.matrix import TableForm

RATINGS = generate(40, 20, density=0.4, seed=0).matrix.with_form(TableForm("user", "film", "stars"))


def test_pairs_of_a_frame_are_predicted() -> None:
    model = Means(seed=0).fit(RATINGS)
    rows, columns, _ = RATINGS.entries()
    frame = polars.DataFrame({"film": [*columns[:3], "nothing"], "user": [*rows[:3], "nobody"]})
    for given in (frame, frame.to_pandas(), frame.rename({"film": "item"})):
        found = flavour.PairPredictor(model).predict(given)
        np.testing.assert_array_equal(found[:3], model.predict(rows[:3], columns[:3]))
        assert np.isfinite(found[3])


@pytest.mark.slow
def test_a_model_goes_through_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow: Any = pytest.importorskip("mlflow.pyfunc", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "runs"))
    model = Means(seed=0).fit(RATINGS)
    flavour.save_model(model, tmp_path / "saved")
    assert not [
        path for path in (tmp_path / "saved").rglob("*") if path.suffix in (".pkl", ".pickle")
    ]
    rows, columns, _ = RATINGS.entries()
    frame = polars.DataFrame({"user": rows[:5].tolist(), "film": columns[:5].tolist()}).to_pandas()
    found = mlflow.load_model(str(tmp_path / "saved")).predict(frame)
    np.testing.assert_array_equal(found, model.predict(rows[:5], columns[:5]))
    np.testing.assert_array_equal(
        flavour.load_model(tmp_path / "saved").complete(), model.complete()
    )
