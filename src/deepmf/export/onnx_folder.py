"""A model as a folder of ONNX files, with the latents and labels that a service needs beside them."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deepmf.errors import BadSetting, CannotSave, DeepMFWarning, MissingDependency
from deepmf.export.parts import ExportModules, parts_of
from deepmf.files.atomic import check_parts, write_parts
from deepmf.matrix.arrays import LatentArray
from deepmf.matrix.label_kinds import AS_TEXT, stored_kind
from deepmf.matrix.labels import Labels
from deepmf.models.model import Model
from deepmf.storage.matrix_tensors import pack_scale

FORMAT = 1
FILES = ("rows.onnx", "columns.onnx", "head.onnx", "row_latents.npy", "column_latents.npy", "model.json")

_OPSET = 18  # the version of ONNX's operators, known to every ONNX runtime since 2023
_MOST_BYTES = 2**31 - 2**20  # of weights: an ONNX file cannot be larger than 2 GiB


def export_onnx(model: Model, folder: str | Path) -> list[Path]:
    """Write a fitted model to a folder, whole or not at all; return the files.

    An earlier export is replaced at once; a folder with other files is refused.

    rows.onnx: row_values (rows, trained columns), NaN where nothing is observed -> row_latents (rows, latent).
    columns.onnx: column_values (columns, trained rows), NaN likewise -> column_latents (columns, latent).
    head.onnx: row_latents, column_latents -> predictions (rows, columns); of DMFD these are levels, and it also gives
        scores (rows, columns) to rank by; that of OrdinalDMF gives probabilities (rows, columns, values) as well.
    row_latents.npy, column_latents.npy: the latents of all rows and columns that the model covers, single precision.
    model.json: their labels in the same order, the scale (and the support of distributions), and how many of them are
        trained.
    """
    parts, place = parts_of(model), Path(folder)
    _make_parents(place)
    check_parts(place, is_part=is_part)
    if model.entries_.row_features is not None or model.entries_.column_features is not None:
        warnings.warn(
            "rows.onnx and columns.onnx read entries alone: what features say is in the latents of known rows and "
            "columns",
            DeepMFWarning,
            stacklevel=2,
        )
    latents = {"row_latents": model.predictor_.rows, "column_latents": model.predictor_.columns}
    whole = _exported(parts, *model.entries_.train.shape)
    contents = {
        "rows.onnx": _part(whole, ["row_values"], ["row_latents"]),
        "columns.onnx": _part(whole, ["column_values"], ["column_latents"]),
        "head.onnx": _part(whole, list(latents), parts.outputs),
        **{f"{name}.npy": _npy(table.whole()) for name, table in latents.items()},
        "model.json": json.dumps(_description(model), ensure_ascii=False).encode(),
    }
    assert tuple(contents) == FILES

    def write(whole: Path) -> None:
        for name, content in contents.items():
            (whole / name).write_bytes(content)

    write_parts(place, write, is_part=is_part)
    return [place / name for name in contents]


def is_part(file: Path) -> bool:
    """Say whether a file may be of an earlier export."""
    return file.is_file() and file.name in FILES


def _make_parents(place: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotSave(f"{place} cannot be a folder ({error.strerror}); nothing was changed") from error


def _exported(parts: ExportModules, n_rows: int, n_columns: int) -> Any:
    """Return the whole of a model as an ONNX graph; how many rows and columns it is given is left open."""
    n_bytes = sum(parameter.nbytes for parameter in parts.parameters())
    if n_bytes > _MOST_BYTES:
        raise BadSetting(
            f"the branches have {n_bytes / 2**30:.1f} GiB of weights; an ONNX file holds 2 GiB, "
            "so smaller hidden_sizes could be exported"
        )
    with _quietly():
        from deepmf.export.onnx_solver import enclose_constants, translations

        program = torch.onnx.export(
            parts,
            (torch.zeros(2, n_columns, dtype=torch.float32), torch.zeros(3, n_rows, dtype=torch.float32)),
            dynamo=True,
            verbose=False,
            opset_version=_OPSET,
            custom_translation_table=translations(),
            input_names=["row_values", "column_values"],
            output_names=["row_latents", "column_latents", *parts.outputs],
            dynamic_shapes=[{0: torch.export.Dim("rows")}, {0: torch.export.Dim("columns")}],
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # they hold paths of the source on this computer
    whole = program.model_proto
    enclose_constants(whole.graph)
    return whole


def _part(whole: Any, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return what lies between some values of a graph, as the content of an ONNX file."""
    from onnx.utils import Extractor

    part = Extractor(whole).extract_model(list(inputs), list(outputs))
    # Constants that only the body of a loop reads: no input of a node names them.
    inner = [node for outer in part.graph.node for each in outer.attribute for node in each.g.node]
    missing = {name for node in inner for name in node.input} - {each.name for each in part.graph.initializer}
    part.graph.initializer.extend(each for each in whole.graph.initializer if each.name in missing)
    content: bytes = part.SerializeToString()
    return content


def _npy(table: LatentArray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, table, allow_pickle=False)
    return stream.getvalue()


def _description(model: Model) -> dict[str, Any]:
    n_rows, n_columns = model.entries_.train.shape
    # What the last axis of probabilities stands for.
    support = {"support": model.support_.tolist()} if model.gives_distribution else {}
    return {
        "format": FORMAT,
        "model": type(model).__name__,
        "scale": pack_scale(model.scale_),
        **support,
        "trained_rows": n_rows,  # the first of `rows`
        "trained_columns": n_columns,
        "rows": _plain_labels(model.entries_.rows),
        "columns": _plain_labels(model.entries_.columns),
    }


def _plain_labels(labels: Labels) -> list[Any]:
    """Return labels as JSON has them: numbers and texts as they are, others (dates, UUIDs, bytes) as text."""
    kind = stored_kind(labels)
    items: list[Any] = labels.array.tolist()
    return [AS_TEXT[kind].write(item) for item in items] if kind in AS_TEXT and kind != "bool" else items


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what torch's exporter says of torch's own insides and of packages that are not needed from the user."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingDependency("export needs onnx and onnxscript: pip install 'deepmf[onnx]'") from error
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        log.setLevel(level)
