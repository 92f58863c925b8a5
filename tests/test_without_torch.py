"""Models are fitted and answer where torch cannot be imported."""

import subprocess
import sys
from pathlib import Path

import pytest

FORBID = """
import sys

sys.modules["torch"] = None  # every import of it fails
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
