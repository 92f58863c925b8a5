"""Rankings on a device are those of numpy, and what cannot be ranked there is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch

from deepmf.batch import Scorer
from deepmf.datasets import generate
from deepmf.errors import BadSetting, DeviceUnavailable
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.low_rank import RankK
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF


@pytest.fixture(scope="module")
def ratings() -> ObservedMatrix:
    return generate(70, 50, density=0.3, seed=0).matrix


@pytest.fixture(scope="module", params=["als", "ordinal", "rank-k", "means"])
def model(request: pytest.FixtureRequest, ratings: ObservedMatrix) -> Model:
    settings: dict[str, Any] = {"hidden_sizes": (8,), "latent_size": 4, "epochs": 1, "views": 1, "device": "cpu"}
    models: dict[str, Model] = {
        "als": ALS(latent_size=4, epochs=3, seed=0),
        "ordinal": OrdinalDMF(seed=0, **settings),
        "rank-k": RankK(seed=0),
        "means": Means(),  # many predictions are equal
    }
    return models[request.param].fit(ratings)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"n": 60},
        {"include_observed": True, "n": 3},
        {"among": [7, 3, 20, 1], "n": 2},
        {"exclude": [0, 1, 2, 30]},
        {"rerank": "mmr", "n": 4},
    ],
    ids=["plain", "all", "observed", "among", "exclude", "rerank"],
)
def test_columns_are_those_of_numpy(model: Model, choice: dict[str, Any], tmp_path: Path) -> None:
    for name in {"among", "exclude"} & choice.keys():
        choice = {**choice, name: model.column_labels_[choice[name]]}
    files = [tmp_path / "numpy.parquet", tmp_path / "torch.parquet"]
    for file, device in zip(files, (None, "cpu"), strict=True):
        model.recommend_to(file, rank_by="value", device=device, **choice)
    numpy, torch = (polars.read_parquet(file) for file in files)
    assert numpy.columns == torch.columns
    assert numpy[:, :3].equals(torch[:, :3])
    np.testing.assert_allclose(numpy["prediction"], torch["prediction"], rtol=1e-5)


def test_new_rows_are_ranked_too(ratings: ObservedMatrix, tmp_path: Path) -> None:
    model = ALS(latent_size=4, epochs=3, seed=0).fit(ratings)
    rows, columns = ["new", ratings.row_labels[1]], [ratings.column_labels[0], "newer"]
    model.extend(ObservedMatrix.from_entries(rows, columns, [3, 4], ratings.scale)).save(tmp_path / "model")
    batch = {
        "row": np.array(["visitor", ratings.row_labels[0]], dtype=object),
        "history_columns": np.array([ratings.column_labels[:3].tolist(), None], dtype=object),
        "history_values": np.array([[5.0, 1.0, 3.0], None], dtype=object),
    }
    plain, on_device = (Scorer(tmp_path / "model", rank_by="value", device=device)(batch) for device in (None, "cpu"))
    for name in ("row", "rank", "column"):
        assert plain[name].tolist() == on_device[name].tolist()
    np.testing.assert_allclose(plain["prediction"], on_device["prediction"], rtol=1e-5)


def test_other_rankings_are_refused(ratings: ObservedMatrix, tmp_path: Path) -> None:
    model = ALS(latent_size=4, epochs=3, seed=0).fit(ratings)
    with pytest.raises(BadSetting, match="rank_by='value'"):
        model.recommend_to(tmp_path / "top.csv", rank_by="relevance", device="cpu")
    if not torch.cuda.is_available():
        with pytest.raises(DeviceUnavailable, match="cuda"):
            model.recommend_to(tmp_path / "top.csv", rank_by="value", device="cuda")
    assert not list(tmp_path.iterdir())
