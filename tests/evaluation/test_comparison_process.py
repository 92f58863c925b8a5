"""A process of its own: the same errors as in this one, its peak memory, and what it says of its failures."""

import io
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from deepmf.data.synthetic.generator import generate
from deepmf.evaluation.compare_models import compare
from deepmf.evaluation.comparison_process import _judged, in_own_process, registered_name, run_job
from deepmf.evaluation.split_plan import SplitPlan
from deepmf.models.dmf.dmf import DMF
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means
from deepmf.storage.matrix_tensors import pack_matrix
from deepmf.storage.model_file import write_file

MATRIX = generate(30, 20, density=0.4, seed=0).matrix
PLAN = SplitPlan(folds=2)


class Unregistered(Means):
    """A model that another process cannot find."""


def test_only_what_another_process_finds_has_a_name() -> None:
    assert registered_name(ALS()) == "als"
    assert registered_name(Unregistered()) is None


def job(folder: Path, **changes: object) -> list[dict[str, object]]:
    packed = pack_matrix(MATRIX, "matrix")
    content = {"model": "als", "settings": ALS().settings.to_dict(), "plan": asdict(PLAN), "threads": 1}
    write_file(
        folder / "job",
        kind="comparison",
        content=content | {"matrix": packed.content} | changes,
        tensors=packed.tensors,
    )
    out = io.StringIO()
    run_job(folder / "job", out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_job_writes_a_line_for_each_split(tmp_path: Path) -> None:
    lines = job(tmp_path)
    here = compare(["als"], MATRIX, folds=2, own_processes=False).models[0]
    assert [line["areas"] for line in lines[:2]] == [split.to_dict()["areas"] for split in here.splits]
    assert int(str(lines[2]["peak_memory_mb"])) > 50 and lines[2]["failure"] is None
    outcome = _judged(lines, 0)
    assert [split.areas for split in outcome.splits] == [split.areas for split in here.splits]


def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    wild = DMF(hidden_sizes=(4,), latent_size=2, epochs=3, learning_rate=1e30, device="cpu").settings.to_dict()
    lines = job(tmp_path, model="dmf", settings=wild)
    assert _judged(lines, 0).splits == () and _judged(lines, 0).failure
    assert "signal 9" in str(_judged([], -9).failure)
    with pytest.raises(RuntimeError, match="status 1"):
        _judged([], 1)


@pytest.mark.slow
def test_in_another_process() -> None:
    told: list[int] = []
    outcome = in_own_process(ALS(), MATRIX, PLAN, told.append)
    here = compare(["als"], MATRIX, folds=2, own_processes=False).models[0]
    assert [split.areas for split in outcome.splits] == [split.areas for split in here.splits]
    assert told == [1, 2]
    assert outcome.peak_memory_mb is not None and outcome.peak_memory_mb > 50
    apart = compare([ALS, Unregistered], MATRIX, folds=2)
    assert [model.peak_memory_mb is None for model in apart.models] == [False, True]
