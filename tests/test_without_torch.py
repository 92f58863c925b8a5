"""Models are fitted and answer where torch cannot be imported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf import ALS, DMF, DMFD, BayesianMF, Means, OrdinalDMF
from deepmf.datasets import generate
from deepmf.models.base import Model

FORBID = """
import sys


class Forbidden:
    names = {"torch"}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in cls.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Forbidden)
"""

FIT = """
import numpy as np

from deepmf import ALS, BayesianMF, Means
from deepmf.datasets import checkerboard, generate
from deepmf.models import SimpleModel


class Tiny(SimpleModel):
    def solve_rows(self, entries, columns):
        factors = np.empty((entries.starts.size - 1, columns.shape[1]))
        for row, (positions, values) in enumerate(entries.groups()):
            known = columns[positions]
            system = known.T @ known + np.eye(columns.shape[1])
            factors[row] = np.linalg.solve(system, known.T @ values)
        return factors

    solve_columns = solve_rows


MODELS = {
    "means": Means(),
    "als": ALS(epochs=3, latent_size=3),
    "bayesian": BayesianMF(epochs=60, latent_size=3),
    "simple": Tiny(epochs=3, latent_size=3),
}
"""

ANSWER = """
from deepmf import ObservedMatrix, load
from deepmf.evaluation import evaluate

matrix = checkerboard(60, 40, observed=0.4, seed=0).matrix
path = sys.argv[2]
MODELS[sys.argv[1]].fit(matrix, checkpoint=path + ".checkpoint").save(path)
model = load(path)
row, columns = model.row_labels_[0], model.column_labels_[:3]
new = ObservedMatrix.from_entries([100] * 3, columns, [1, 5, 5], model.scale_)
more = model.extend(new).forget(rows=[row])
guest = model.fold_in(columns, [1, 5, 5])
print(model.predict([row] * 3, columns).tolist(), guest.predict(columns).tolist())
print(model.recommend(row, n=3).labels.tolist(), guest.recommend(n=3).labels.tolist())
print(model.explain(row, columns[0]).labels.tolist(), more.complete().shape)
print(evaluate(model, model.entries_.train)[-1].rmse)
if hasattr(model, "draw"):
    more.draw([100], columns[:1])
"""


ASK = """
import json
from pathlib import Path

import numpy as np
from deepmf import ObservedMatrix
from deepmf.evaluation import evaluate
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.models.loading import load

answers = {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    model = load(path)
    train, columns = model.entries_.train, model.column_labels_[:3]
    row = model.row_labels_[0]
    new = ObservedMatrix.from_entries(
        ["new"] * 3 + [row] * 2, [*columns, "film", "other"], [1, 3, 5, 4, 2], model.scale_
    )
    more = model.extend(new)
    less = more.forget(rows=[row])
    guest = more.fold_in([*columns, "film"], [1, 3, 5, 2])
    less.save(path.with_suffix(".less"))
    again = load(path.with_suffix(".less"))
    test = train.take_entries(np.arange(0, train.n_entries, 9))
    assert again.recommend("new", n=3).labels.tolist() == less.recommend("new", n=3).labels.tolist()
    assert model.explain(row, columns[0]).labels.size > 0
    assert evaluate_ranking(again, new.take_entries(np.arange(2)), unknown="nan").n == 10
    answers[path.stem] = {
        "predictions": model.predict(*train.take_entries(np.arange(40)).entries()[:2]).tolist(),
        "extended": more.predict(["new"] * 3, columns).tolist(),
        "folded in": guest.predict(columns).tolist(),
        "recommended": guest.recommend(n=5).labels.tolist(),
        "completed": float(np.sum(again.complete())),
        "error": evaluate(model, test)[-1].rmse,
    }
print(json.dumps(answers))
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["means", "als", "bayesian", "simple"])
def test_a_model_is_fitted_and_answers_without_torch(name: str, tmp_path: Path) -> None:
    answers = run(FORBID + FIT + ANSWER, name, str(tmp_path / "model"))
    assert answers.stderr == "" and len(answers.stdout.splitlines()) == 4


@pytest.mark.slow
def test_a_gpu_needs_torch() -> None:
    script = FORBID + FIT + "BayesianMF(device='cuda').fit(generate(9, 9, seed=0).matrix)"
    last_line = run(script).stderr.splitlines()[-1]
    assert "DeviceUnavailable" in last_line and "torch is not installed" in last_line


QUICK: dict[str, Any] = {"hidden_sizes": (8,), "latent_size": 4, "epochs": 4, "device": "cpu"}

SAVED: list[Model] = [
    Means(),
    ALS(epochs=3, seed=0),
    BayesianMF(epochs=20, burn_in=10, samples=3, seed=0),
    DMF(**QUICK),
    DMFD(**QUICK),
    OrdinalDMF(**QUICK, networks=2, views=4, landmarks=6, linear_iterations=8, linear_samples=2),
]


FIT_OTHERS = """
import warnings

import pytest
from deepmf import DMF, OrdinalDMF
from deepmf.datasets import generate
from deepmf.errors import MissingDependency

matrix = generate(60, 40, density=0.2, seed=0).matrix
with pytest.raises(MissingDependency, match="torch"):
    DMF().fit(matrix)
with warnings.catch_warnings(record=True) as caught:
    model = OrdinalDMF(linear_iterations=8, linear_samples=2).fit(matrix)
assert sum("torch" in str(warning.message) for warning in caught) == 1
assert "sampler" in model.chosen_["members"] and "network" not in model.chosen_["members"]
"""


@pytest.mark.slow
def test_a_blend_is_fitted_without_its_network_and_others_say_what_is_missing() -> None:
    assert run(FORBID + FIT_OTHERS).stderr == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::deepmf.errors.NotBetterThanMeans")
def test_every_model_answers_without_torch(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    matrix = generate(60, 40, density=0.2, seed=0).matrix
    rows, columns, _ = matrix.take_entries(np.arange(40)).entries()
    for model in SAVED:
        model.fit(matrix).save(folder / f"{type(model).__name__}.safetensors")
    asked = run(FORBID + ASK, str(folder))
    assert asked.stderr == ""
    answers = json.loads(asked.stdout)
    for model in SAVED:
        found = answers[type(model).__name__]
        np.testing.assert_allclose(found["predictions"], model.predict(rows, columns), atol=1e-5)
        assert np.all(np.isfinite(found["extended"] + found["folded in"]))
        assert len(found["recommended"]) == 5 and found["error"] < 2.0


@pytest.mark.slow
def test_commands_import_what_they_use(tmp_path: Path) -> None:
    matrix = generate(60, 40, density=0.2, seed=0).matrix
    model, entries = tmp_path / "means.safetensors", tmp_path / "entries.csv"
    Means().fit(matrix).save(model)
    entries.write_text(f"row,column,value\nnew,{matrix.column_labels[0]},4\n")
    pairs = "Forbidden.names |= {'matplotlib', 'jinja2', 'pydantic', *sys.argv.pop(1).split()}\n"
    command = FORBID + pairs + "from deepmf.cli.app import main\nmain(sys.argv[1:])"
    for line in (
        f"inspect {model}",
        f"predict {model} {entries}",
        f"recommend {model} --extend {entries} --row new",
        f"evaluate {model} {entries}",
    ):
        unused = "polars" if line.startswith("inspect") else ""
        shown = run(command, unused, *line.split())
        assert shown.returncode == 0 and shown.stdout, shown.stderr


@pytest.mark.slow
def test_a_table_is_completed_without_torch() -> None:
    pytest.importorskip("sklearn")
    script = """
import numpy as np
from deepmf.sklearn import DMFImputer

table = np.random.default_rng(0).normal(size=(60, 1)) + np.zeros((1, 6))
table[::3, 2] = np.nan
assert np.isfinite(DMFImputer(random_state=0).fit_transform(table)).all()
"""
    assert run(FORBID + script).stderr == ""
