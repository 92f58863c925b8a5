"""Rankings on a device are those of numpy, and what cannot be ranked there is refused."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars
import pytest
import torch

from deepmf.batch import Scorer
from deepmf.datasets import generate
from deepmf.errors import BadSetting, DeviceUnavailable
from deepmf.matrix.extras import Extras
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.paper.low_rank import RankK
from deepmf.recommend.ranker import Relevance
from deepmf.recommend.request import RankBy

SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "latent_size": 4,
    "epochs": 1,
    "views": 1,
    "neighbours": None,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def ratings() -> ObservedMatrix:
    matrix = generate(70, 50, density=0.3, seed=0).matrix
    return matrix.with_extras(
        Extras(places=np.random.default_rng(0).permutation(matrix.n_entries).astype(np.int32))
    )


@pytest.fixture(scope="module", params=["als", "ordinal", "rank-k", "means"])
def model(request: pytest.FixtureRequest, ratings: ObservedMatrix) -> Model:
    models: dict[str, Model] = {
        "als": ALS(latent_size=4, epochs=3, seed=0),
        "ordinal": OrdinalDMF(seed=0, linear_size=0, **SMALL),
        "rank-k": RankK(seed=0),
        "means": Means(),  # many predictions are equal
    }
    return models[request.param].fit(ratings)


def test_scores_of_what_comes_next_come_from_the_device(
    ratings: ObservedMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Means().fit(ratings)
    expected = model.recommend(model.row_labels_, rank_by="next")
    monkeypatch.setattr(Relevance, "log_next", None)
    found = model.recommend(model.row_labels_, rank_by="next", device="cpu")
    assert found.presence is not None and expected.presence is not None
    np.testing.assert_allclose(found.presence, expected.presence, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"n": 60},
        {"include_observed": True, "n": 3},
        {"among": [7, 3, 20, 1], "n": 2},
        {"exclude": [0, 1, 2, 30]},
    ],
    ids=["plain", "all", "observed", "among", "exclude"],
)
@pytest.mark.parametrize("rank_by", get_args(RankBy))
@pytest.mark.slow
def test_columns_are_those_of_numpy(
    model: Model, rank_by: RankBy, choice: dict[str, Any], tmp_path: Path
) -> None:
    for name in {"among", "exclude"} & choice.keys():
        choice = {**choice, name: model.column_labels_[choice[name]]}
    if rank_by != "value" and model.rankers_.presence is None:
        return
    check_same(model, tmp_path, rank_by=rank_by, **choice)


def check_same(model: Model, folder: Path, **options: Any) -> None:
    files = [folder / "numpy.parquet", folder / "torch.parquet"]
    for file, device in zip(files, (None, "cpu"), strict=True):
        model.recommend_to(file, device=device, **options)
    plain, on_device = (polars.read_parquet(file) for file in files)
    assert plain.columns == on_device.columns
    assert plain[:, :3].equals(on_device[:, :3])
    for name in plain.columns[3:]:
        numbers = (np.array(frame[name].to_list(), dtype=float) for frame in (plain, on_device))
        np.testing.assert_allclose(*numbers, rtol=2e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:1 row")
@pytest.mark.parametrize("presence", ["full", "nearest"])
@pytest.mark.parametrize("rank_by", get_args(RankBy))
@pytest.mark.parametrize("kind", ["ratings", "weighted", "interactions"])
def test_presence_is_that_of_numpy(
    presence: str, rank_by: RankBy, kind: str, tmp_path: Path
) -> None:
    rows, columns, values = generate(90, 60, density=0.2, seed=1, named=False).matrix.entries()
    scale = Scale.interactions() if kind == "interactions" else None
    weights = np.random.default_rng(0).uniform(0.5, 3, rows.size) if kind == "weighted" else None
    matrix = ObservedMatrix.from_entries(
        rows, columns, values, scale, weights=weights, times=np.arange(rows.size)
    )
    if kind == "interactions" and rank_by == "value":
        return
    model = ALS(latent_size=4, epochs=3, seed=0, presence=presence).fit(matrix, progress=False)
    # A new row, a new column, and a row that only has an entry in the new column.
    newer = model.extend(
        ObservedMatrix.from_entries([900, 900, 901, 5], [3, 70, 70, 70], [5, 4, 3, 1], matrix.scale)
    )
    check_same(newer, tmp_path, rank_by=rank_by)


def test_new_rows_are_ranked_too(ratings: ObservedMatrix, tmp_path: Path) -> None:
    model = ALS(latent_size=4, epochs=3, seed=0).fit(ratings)
    rows, columns = ["new", ratings.row_labels[1]], [ratings.column_labels[0], "newer"]
    model.extend(ObservedMatrix.from_entries(rows, columns, [3, 4], ratings.scale)).save(
        tmp_path / "model"
    )
    batch = {
        "row": np.array(["visitor", ratings.row_labels[0]], dtype=object),
        "history_columns": np.array([ratings.column_labels[:3].tolist(), None], dtype=object),
        "history_values": np.array([[5.0, 1.0, 3.0], None], dtype=object),
    }
    plain, on_device = (
        Scorer(tmp_path / "model", rank_by="value", device=device)(batch)
        for device in (None, "cpu")
    )
    for name in ("row", "rank", "column"):
        assert plain[name].tolist() == on_device[name].tolist()
    np.testing.assert_allclose(plain["prediction"], on_device["prediction"], rtol=1e-5)


def test_calibrated_probabilities_are_refused(tmp_path: Path) -> None:
    matrix = generate(60, 40, density=0.4, seed=0, levels=None).matrix
    model = OrdinalDMF(seed=0, linear_size=4, linear_iterations=20, **SMALL).fit(
        matrix, progress=False
    )
    presence = model.rankers_.presence
    assert presence is not None and presence.liking_weight  # what is liked moves the order
    with pytest.raises(BadSetting, match="rank_by='value'"):
        model.recommend_to(tmp_path / "top.csv", rank_by="relevance", device="cpu")


def test_an_absent_device_is_refused(ratings: ObservedMatrix, tmp_path: Path) -> None:
    model = ALS(latent_size=4, epochs=3, seed=0).fit(ratings)
    if not torch.cuda.is_available():
        with pytest.raises(DeviceUnavailable, match="cuda"):
            model.recommend_to(tmp_path / "top.csv", rank_by="value", device="cuda")
    assert not list(tmp_path.iterdir())
