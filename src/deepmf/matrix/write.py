"""A matrix as a file: csv, tsv, Parquet, npz or a store, whole or not at all, for `read_matrix` to read back."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting
from deepmf.files import write_atomically, write_csv, write_tsv
from deepmf.matrix.packed import write_store

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix


# The arrays of an .npz file beside those of scipy, which ignores them.
LABELS = {"row": "row_labels", "column": "column_labels"}

FORM = "form"


_FRAMES: dict[str, Callable[[Any, BinaryIO], None]] = {
    ".csv": write_csv,
    ".tsv": write_tsv,
    ".parquet": lambda frame, file: frame.write_parquet(file),
}

STORE = ".store"

ENDINGS = (*_FRAMES, ".npz", STORE)


def write_matrix(matrix: ObservedMatrix, path: str | Path) -> None:
    """Write a matrix in the format that the ending of the file says."""
    ending = Path(path).suffix.lower()
    check_ending(path)
    if ending == STORE:
        write_store(matrix, path)
        return
    if ending == ".npz":
        arrays = _label_arrays(matrix)
        write_atomically(path, lambda temporary: _write_npz(matrix, arrays, temporary))
        return
    frame = matrix.to_table() if matrix.form.wide else matrix.to_frame()
    write_atomically(path, lambda temporary: _write_frame(frame, temporary, _FRAMES[ending]))


def check_ending(path: str | Path) -> None:
    """Refuse a file whose ending says no format."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise BadSetting(f"the name of the file must end in {', '.join(ENDINGS)}; got {str(path)!r}")


def _write_frame(frame: Any, path: Path, write: Callable[[Any, BinaryIO], None]) -> None:
    with path.open("wb") as file:
        write(frame, file)


def _write_npz(matrix: ObservedMatrix, arrays: dict[str, npt.NDArray[Any]], path: Path) -> None:
    """Write what `scipy.sparse.load_npz` reads, and our own arrays; the same matrix gives the same bytes."""
    sparse = matrix.to_sparse()
    own = {"indices": sparse.indices, "indptr": sparse.indptr, "data": sparse.data}
    own |= {"format": np.array(b"csr"), "shape": np.array(sparse.shape), "_is_array": np.array(True)}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in (own | arrays).items():
            member = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _label_arrays(matrix: ObservedMatrix) -> dict[str, npt.NDArray[Any]]:
    """Return the labels of both axes, unless they only count from 0, and the form, as arrays without a pickle."""
    arrays = {FORM: np.array([*matrix.form[:3], "wide" if matrix.form.wide else "long"])}
    for axis, labels in (("row", matrix.row_labels), ("column", matrix.column_labels)):
        if labels.dtype.kind == "i" and np.array_equal(labels, np.arange(labels.size)):
            continue
        plain = np.array(labels.tolist())
        if plain.dtype.kind not in "iU" or plain.tolist() != labels.tolist():
            raise BadEntries(f"an .npz file holds {axis} labels that are ints or texts; write .parquet or .csv")
        arrays[LABELS[axis]] = plain
    return arrays
