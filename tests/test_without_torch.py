"""A model answers where torch cannot be imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from deepmf import Means
from deepmf.datasets import generate

ASK = """
import sys

sys.modules["torch"] = None  # every import of it fails
from deepmf import ObservedMatrix
from deepmf.evaluation import evaluate
from deepmf.models.loading import load

model = load(sys.argv[1])
row, columns = model.row_labels_[0], model.column_labels_[:3]
new = ObservedMatrix.from_entries(["new"] * 3, columns, [1, 3, 5], model.scale_)
more = model.extend(new).forget(rows=[row])
guest = model.fold_in(columns, [1, 3, 5])
print(model.predict([row] * 3, columns).tolist())
print(model.recommend(row, n=3).labels.tolist(), guest.recommend(n=3).labels.tolist())
print(model.explain(row, columns[0]).labels.tolist(), more.complete().shape)
print(evaluate(model, model.entries_.train)[-1].rmse)
"""


@pytest.mark.slow
def test_a_model_answers_without_torch(tmp_path: Path) -> None:
    Means().fit(generate(60, 40, density=0.2, seed=0).matrix).save(tmp_path / "model")
    command = [sys.executable, "-c", ASK, str(tmp_path / "model")]
    answers = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answers.stderr == "" and len(answers.stdout.splitlines()) == 4
