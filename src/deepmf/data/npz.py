"""Reading a sparse matrix of scipy from `.npz`, of which nothing is unpickled or trusted."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import numpy as np
import scipy.sparse

from deepmf.data.source import check_expansion, summarise
from deepmf.errors import UnreadableFile
from deepmf.files import check_path


def read_npz(path: str | Path) -> scipy.sparse.coo_array:
    """Read a scipy sparse matrix from `.npz`; nothing is unpickled, and inconsistent indices are
    refused."""
    path = check_path(path)
    try:
        with path.open("rb") as file:
            with zipfile.ZipFile(file) as archive:
                check_expansion(path, sum(member.file_size for member in archive.infolist()))
                for member in archive.infolist():
                    _check_member(archive, member)
            file.seek(0)
            matrix = scipy.sparse.load_npz(file)
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format(full_check=True)  # pointers rise, and indices lie inside
        check_expansion(path, 4 * sum(matrix.shape))  # bytes of a row or a column without entries
        return matrix.tocoo()
    except UnreadableFile:
        raise
    except Exception as error:  # numpy, scipy and zipfile raise anything over a broken archive
        if "pickle" in str(error):
            raise UnreadableFile(
                f"{path} holds a pickle, which could run code; it is refused"
            ) from error
        raise UnreadableFile(
            f"{path} is not a whole scipy sparse .npz file ({summarise(error)})"
        ) from error


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array whose header claims another size than its bytes, before memory is taken for
    it."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, kind = read(file)
        if (
            not kind.hasobject
            and math.prod(shape) * kind.itemsize != member.file_size - file.tell()
        ):
            raise ValueError(f"{member.filename} is not as large as it says")
