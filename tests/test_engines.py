"""The scripts of the page of engines run on local clusters, and a worker that dies loses and
repeats nothing."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from deepmf import load
from deepmf.batch import Scorer
from deepmf.datasets import generate
from deepmf.models.als import ALS
from deepmf.models.base import Model

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of the engines

PAGE = Path(__file__).parents[1] / "docs" / "engines.md"
N_ROWS = 40


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A mapped model and files of its rows in the working folder, which the workers see."""
    model = ALS(latent_size=3, epochs=3, seed=0).fit(
        generate(N_ROWS, 20, density=0.4, seed=0).matrix
    )
    model.save(tmp_path / "ratings.model")
    (tmp_path / "rows").mkdir()
    rows = polars.DataFrame({"row": model.row_labels_.tolist()})
    for part in range(4):
        rows[part::4].write_parquet(tmp_path / "rows" / f"{part}.parquet")
    monkeypatch.chdir(tmp_path)
    # Workers are other processes: they find the package where this one does.
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([*filter(None, sys.path), str(PAGE.parents[1] / "src")])
    )
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    return model


def read_script(engine: str) -> str:
    """Return the script of an engine on the page."""
    (found,) = re.findall(
        rf"^## {engine}\n.*?^```py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return str(found)


def check_results(model: Model, folder: Path) -> None:
    """Compare files of recommendations with those of the model: each row once, none missing."""
    found = polars.read_parquet(f"{folder}/**/*.parquet").sort("row", "rank")
    rows = sorted(model.row_labels_.tolist())
    best = model.recommend(rows, 10)
    is_there = ~np.isnan(best.values)
    assert found["row"].to_list() == np.repeat(rows, is_there.sum(axis=1)).tolist()
    assert found["column"].to_list() == best.labels[is_there].tolist()


@pytest.fixture
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'deepmf[ray]'")
    yield ray
    ray.shutdown()


def test_ray_recommends_to_all_rows(ray: Any, model: Model, tmp_path: Path) -> None:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    exec(read_script("Ray Data"), {"__name__": "__main__"})
    check_results(model, tmp_path / "top")


def test_ray_trains_one_model(
    ray: Any, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "300")  # on a busy machine
    pytest.importorskip(
        "ray.train.torch", reason="Ray Train is not installed: pip install 'deepmf[ray]'"
    )
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    entries = dict(zip(("row", "column", "value"), model.entries_.train.entries(), strict=True))
    polars.DataFrame({name: values.tolist() for name, values in entries.items()}).write_parquet(
        "ratings.parquet"
    )
    exec(read_script("Ray Train"), {"__name__": "__main__"})
    fitted = load(tmp_path / "fitted.model")
    assert sorted(fitted.row_labels_.tolist()) == sorted(model.row_labels_.tolist())
    assert np.isfinite(
        fitted.predict(*(part[:5] for part in model.entries_.train.entries()[:2]))
    ).all()


class DyingScorer(Scorer):
    """A scorer whose process ends at its first batch, once."""

    def __call__(self, batch: Any) -> Any:
        flag = self.path.parent / "has died"
        if not flag.exists():
            flag.touch()
            os._exit(1)
        return super().__call__(batch)


def test_ray_replaces_a_worker_that_dies(ray: Any, model: Model, tmp_path: Path) -> None:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    found = ray.data.read_parquet(str(tmp_path / "rows")).map_batches(
        DyingScorer,
        fn_constructor_args=[str(tmp_path / "ratings.model")],
        concurrency=1,
        batch_size=8,
        batch_format="pyarrow",
    )
    found.write_parquet(str(tmp_path / "top"))
    assert (tmp_path / "has died").exists()
    check_results(model, tmp_path / "top")


def test_spark_recommends_to_all_rows(model: Model, tmp_path: Path) -> None:
    sql = pytest.importorskip(
        "pyspark.sql", reason="pyspark is not installed: pip install 'deepmf[spark]'"
    )
    spark = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    try:
        exec(read_script("Spark"), {"__name__": "__main__"})
        check_results(model, tmp_path / "top")
    finally:
        spark.stop()


def test_dask_recommends_to_all_rows(model: Model, tmp_path: Path) -> None:
    pytest.importorskip(
        "dask.dataframe", reason="dask is not installed: pip install 'deepmf[dask]'"
    )
    distributed = pytest.importorskip(
        "distributed", reason="distributed is not installed: pip install 'deepmf[dask]'"
    )
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
        exec(read_script("Dask"), {"__name__": "__main__"})
    check_results(model, tmp_path / "top")
