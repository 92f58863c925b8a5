"""Series with positions through everything: command line, files, service, engines."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from starlette.testclient import TestClient

from deepmf.batch import Scorer
from deepmf.cli.app import main
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.loading import load
from deepmf.serve.app import create_app
from deepmf.serve.database import open_database
from deepmf.serve.service import Service

pytestmark = pytest.mark.slow

AT = np.arange(180)
SERIES = [f"sensor {number}" for number in range(16)]
HOURS = [f"hour {hour}" for hour in AT]


@pytest.fixture(scope="module")
def waves() -> npt.NDArray[np.float64]:
    dice = np.random.default_rng(0)
    waves = np.sin(AT / np.array([[4.0], [9.0]]) + dice.uniform(0, 6, (2, 1)))
    return dice.normal(size=(16, 2)) @ waves + 0.2 * dice.normal(size=(16, 180))


@pytest.fixture(scope="module")
def path(waves: npt.NDArray[np.float64], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that the command line fitted to every second reading."""
    folder = tmp_path_factory.mktemp("sensors")
    is_known = np.random.default_rng(1).random(waves.shape) < 0.3
    rows, columns = np.nonzero(is_known)
    readings = ObservedMatrix.from_entries(
        np.array(SERIES)[rows], np.array(HOURS)[columns], waves[is_known]
    )
    readings.write(folder / "readings.csv")
    lines = [f"{name},{hour}" for name, hour in zip(HOURS, AT, strict=True)]
    (folder / "times.csv").write_text("\n".join(["column,time", *lines]))
    (folder / "later.csv").write_text("column,time\nlater,30.5\n")
    arguments = f"fit {folder}/readings.csv -o {folder}/model --model bayesian --set effort=quick"
    times = f"--column-features {folder}/times.csv --kind time=position --validation-share 0"
    with pytest.raises(SystemExit) as ending:
        main([*arguments.split(), *times.split()])
    assert ending.value.code == 0
    return folder / "model"


@pytest.fixture(scope="module")
def extended(path: Path) -> Model:
    later = Features.from_columns(["later"], {"time": [30.5]}, kinds={"time": "position"})
    return load(path).extend(None, column_features=later)


def test_a_new_time_is_between_its_neighbours(
    extended: Model, waves: npt.NDArray[np.float64]
) -> None:
    assert extended.chosen_["members"]["positions"] > 0.5
    assert extended.chosen_["parts"]["positions"].startswith("fitted")
    predicted = extended.predict(SERIES, ["later"] * 16)
    assert np.std(predicted - waves[:, 30:32].mean(axis=1)) < 0.5 * np.std(waves[:, 30])


def test_the_command_line_predicts_at_new_times(
    path: Path, extended: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.csv").write_text("row,column\nsensor 3,later\n")
    words = f"predict {path} {tmp_path}/pairs.csv --column-features {path.parent}/later.csv --json"
    with pytest.raises(SystemExit):
        main(words.split())
    line = json.loads(capsys.readouterr().out)
    assert line["prediction"] == pytest.approx(extended.predict(["sensor 3"], ["later"])[0])


def test_the_service_takes_new_times_and_guests(
    path: Path, extended: Model, tmp_path: Path
) -> None:
    service = Service(load(path), open_database(str(tmp_path / "entries.sqlite")))
    with TestClient(create_app(service), base_url="http://localhost") as client:
        answer = client.put("/v1/columns/later/features", json={"features": {"time": 30.5}})
        assert answer.status_code == 200, answer.text
        pairs = [{"row": name, "column": "later"} for name in SERIES]
        answer = client.post("/v1/predict", json={"pairs": pairs})
        values = [one["expected"] for one in answer.json()["predictions"]]
        np.testing.assert_allclose(values, extended.predict(SERIES, ["later"] * 16), rtol=1e-4)
        history = [{"column": HOURS[at], "value": 0.5} for at in (3, 7)]
        answer = client.post("/v1/predict", json={"history": history, "columns": HOURS[4:7]})
        values = [one["expected"] for one in answer.json()["predictions"]]
        guest = extended.fold_in([HOURS[3], HOURS[7]], [0.5, 0.5])
        np.testing.assert_allclose(values, guest.predict(HOURS[4:7]), rtol=1e-4)
        bad = client.put("/v1/columns/worse/features", json={"features": {"time": "soon"}})
        assert bad.status_code == 422


def test_an_engine_scores_batches_by_the_file(path: Path) -> None:
    batch = {"row": np.array(SERIES[:3]), "column": np.array(HOURS[:3])}
    scored = Scorer(path, "predict")(batch)
    np.testing.assert_allclose(scored["prediction"], load(path).predict(SERIES[:3], HOURS[:3]))


def test_what_is_forgotten_predicts_no_more(extended: Model) -> None:
    model = extended.forget(columns=["later"])
    np.testing.assert_array_equal(
        model.predict(SERIES, HOURS[:16]), extended.predict(SERIES, HOURS[:16])
    )
    assert "later" not in model.column_labels_.tolist()
