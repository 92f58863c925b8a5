"""Exported models: their files compute the latents and predictions of the model itself."""

from __future__ import annotations

import json
import sys
import warnings
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import onnxruntime
import pytest
import torch
from tests.export.conftest import OWN, SMALL, ordinal_support, values_of

from deepmf.datasets import generate
from deepmf.errors import BadSetting, CannotSave, MissingDependency, NotBetterThanMeans, NotFitted
from deepmf.export import onnx
from deepmf.export.onnx import describe_model, export_onnx, make_modules, read_latents
from deepmf.export.onnx_solver import conjugate_gradients
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.dmf import DMF
from deepmf.models.ordinal.model import OrdinalDMF

REFINED = ["dmf-o, refined", "dmf-o, rows refined"]

NAMES = [
    "dmf",
    "dmf, interval",
    "dmf-d",
    "dmf-o",
    "dmf-o, interval",
    *REFINED,
    "dmf-o, sampled",
    "dmf-o, sampled, interval",
    "dmf-o, projected",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_they_make_what_the_model_makes(models: dict[str, Any], name: str) -> None:
    model = models[name]
    parts = make_modules(model)
    with torch.no_grad():
        rows = parts.rows(torch.from_numpy(values_of(model)))
        answers = parts.head(rows, torch.from_numpy(read_latents(model, model.predictor_.columns)))
    # A linear part alone has latents that are large beside those of the network.
    np.testing.assert_allclose(
        rows.numpy(), read_latents(model, model.predictor_.rows), rtol=1e-4, atol=1e-4
    )
    wanted = ordinal_support(model)
    assert parts.outputs == tuple(wanted)
    for answer, right in zip(answers, wanted.values(), strict=True):
        assert answer.shape == right.shape
        assert np.abs(answer.numpy() - right).max() < 5e-5


@pytest.mark.slow
def test_samples_of_the_posterior_are_a_part_of_what_is_exported(models: dict[str, Any]) -> None:
    for name in ("dmf-o, sampled", "dmf-o, projected"):
        assert models[name].chosen_on_entries_["linear_samples"] > 0


def test_what_has_no_parts() -> None:
    with pytest.raises(BadSetting, match="als"):
        make_modules(ALS(epochs=1).fit(generate(10, 10, density=0.5).matrix))
    with pytest.raises(NotFitted):
        make_modules(DMF())


@pytest.mark.slow
def test_what_is_exported_reads_entries_alone() -> None:
    matrix = generate(24, 18, density=0.5, seed=0).matrix
    features = {
        "row_features": Features.from_columns(matrix.row_labels, {"n": range(24)}),
        "column_features": Features.from_columns(matrix.column_labels, {"n": range(18)}),
    }
    own = OWN | {"linear_size": 3, "linear_iterations": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotBetterThanMeans)
        model = OrdinalDMF(**SMALL | own | {"epochs": 3}).fit(matrix, **features)
    values = torch.from_numpy(values_of(model)[:3])
    histories = [
        (matrix.column_labels[~line.isnan().numpy()], line[~line.isnan()].tolist())
        for line in values
    ]
    with torch.no_grad():
        found = make_modules(model).rows(values).numpy()
    folded = read_latents(model, model.fold_in_many(histories).predictor.rows)
    np.testing.assert_allclose(found, folded, atol=1e-4)


TRAINED = {"trained_rows": 32, "trained_columns": 24}

FILES = ["rows.onnx", "head.onnx", "row_latents.npy", "column_latents.npy", "model.json"]


class Exported(NamedTuple):
    """A model that covers new rows and columns, the folder it was exported to, and what was
    returned."""

    model: Any
    folder: Path
    files: list[Path]


@pytest.fixture(scope="module", params=["dmf-d", "dmf-o, sampled"])
def exported(
    request: pytest.FixtureRequest, models: dict[str, Any], tmp_path_factory: Any
) -> Exported:
    folder = tmp_path_factory.mktemp(request.param) / "exported"
    model = models[request.param]
    return Exported(model, folder, export_onnx(model, folder))


@pytest.mark.slow
def test_the_files(exported: Exported) -> None:
    assert exported.files == [exported.folder / name for name in FILES]
    assert sorted(path.name for path in exported.folder.iterdir()) == sorted(FILES)


@pytest.mark.slow
def test_the_branch_makes_the_latents_of_trained_and_of_new_rows(exported: Exported) -> None:
    kept = {axis: np.load(exported.folder / f"{axis}_latents.npy") for axis in ("row", "column")}
    predictor = exported.model.predictor_
    assert np.array_equal(kept["row"], read_latents(exported.model, predictor.rows))
    assert np.array_equal(kept["column"], read_latents(exported.model, predictor.columns))
    values = values_of(exported.model)
    branch = onnxruntime.InferenceSession(exported.folder / "rows.onnx")
    for some in (slice(None), slice(-1, None)):  # all; and a new one, alone
        (latents,) = branch.run(None, {"row_values": values[some]})
        np.testing.assert_allclose(latents, kept["row"][some], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_head_makes_the_predictions(exported: Exported) -> None:
    rows, columns = (np.load(exported.folder / f"{axis}_latents.npy") for axis in ("row", "column"))
    head = onnxruntime.InferenceSession(exported.folder / "head.onnx")
    wanted = ordinal_support(exported.model)
    assert [output.name for output in head.get_outputs()] == list(wanted)
    for some in (slice(None), slice(1)):
        answers = head.run(None, {"row_latents": rows[some], "column_latents": columns})
        for answer, right in zip(answers, wanted.values(), strict=True):
            assert answer.shape == right[some].shape
            assert np.abs(answer - right[some]).max() < 1e-5


@pytest.mark.slow
def test_names_and_open_sizes(exported: Exported) -> None:
    size = np.load(exported.folder / "row_latents.npy").shape[1]
    shapes = {
        each.name: each.shape
        for session in (
            onnxruntime.InferenceSession(exported.folder / name)
            for name in ("rows.onnx", "head.onnx")
        )
        for each in session.get_inputs()
    }
    assert shapes == {
        "row_values": ["rows", TRAINED["trained_columns"]],
        "row_latents": ["rows", size],
        "column_latents": ["columns", size],
    }


@pytest.mark.slow
def test_the_description(exported: Exported) -> None:
    described = json.loads((exported.folder / "model.json").read_text(encoding="utf-8"))
    model, stars = exported.model, [1, 2, 3, 4, 5]
    assert described == {
        "format": 1,
        "model": type(model).__name__,
        "scale": {"levels": stars},
        **({"support": stars} if isinstance(model, OrdinalDMF) else {}),
        **TRAINED,
        "rows": model.row_labels_.tolist(),
        "columns": model.column_labels_.tolist(),
    }


@pytest.mark.slow
def test_nothing_tells_where_the_source_lies(exported: Exported) -> None:
    assert all(b"deepmf/nn" not in (exported.folder / name).read_bytes() for name in FILES)


def test_what_cannot_be_exported(
    models: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(BadSetting, match="2 GiB"):
        patch.setattr(onnx, "_MOST_BYTES", 100)
        export_onnx(models["dmf"], tmp_path)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingDependency, match=r"deepmf\[onnx\]"):
        export_onnx(models["dmf"], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_of_others_are_no_earlier_export(models: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CannotSave, match=r"notes\.txt"):
        export_onnx(models["dmf"], tmp_path)


def test_labels_of_every_kind_are_described() -> None:
    days, texts = [date(2020, 1, 1), date(2021, 2, 3)], [b"\x00a", b"\xffb"]
    keys = [UUID(int=1), UUID(int=2)]
    for rows, columns in ((days, texts), (keys, [datetime(2020, 1, 1, 5), datetime(2021, 1, 1)])):
        matrix = ObservedMatrix.from_entries(
            rows * 2, [columns[0]] * 2 + [columns[1]] * 2, [1, 2, 3, 4]
        )
        described = json.loads(json.dumps(describe_model(DMF(**SMALL | {"epochs": 1}).fit(matrix))))
        assert len(set(described["rows"])) == len(set(described["columns"])) == 2
    assert described["rows"] == [str(key) for key in keys]


@pytest.mark.slow  # importing onnxscript takes seconds
def test_systems_are_solved_to_rounding() -> None:
    generator = np.random.default_rng(0)
    lines = generator.normal(size=(3, 500, 40)) * np.geomspace(0.02, 8, 40)
    matrices = lines.transpose(0, 2, 1) @ lines + 3.0 * np.eye(40)
    assert np.linalg.cond(matrices).min() > 5000
    right = generator.normal(size=(3, 40, 1))
    right[2] = 0.0
    session = onnxruntime.InferenceSession(conjugate_gradients.to_model_proto().SerializeToString())
    (found,) = session.run(
        None, {"matrices": matrices.astype(np.float32), "right": right.astype(np.float32)}
    )
    expected = np.linalg.solve(matrices, right)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
    (loop,) = (
        node for node in conjugate_gradients.to_function_proto().node if node.op_type == "Loop"
    )
    assert len(loop.output) == 1  # of several, the order would be left to chance
