"""The public data sets on this machine: found or downloaded, then read as a matrix or as a published split."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.data.datasets.catalogue import DATASETS, Dataset
from deepmf.data.datasets.fetch import Progress, download, extract
from deepmf.data.splits import Split, split_from_masks
from deepmf.errors import BadSetting, BadSplit, DatasetUnavailable, UnknownLabel, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix


class _Pairs(NamedTuple):
    """The row and column labels of some entries."""

    rows: npt.NDArray[Any]
    columns: npt.NDArray[Any]


def names() -> list[str]:
    """Return the names of all data sets.

    >>> names()[:2]
    ['ml-100k', 'ml-1m']
    """
    return list(DATASETS)


def info(name: str) -> Dataset:
    """Return what the catalogue knows about a data set.

    >>> info("ml-1m").n_entries
    1000209
    """
    if name not in DATASETS:
        nearest = difflib.get_close_matches(str(name).lower(), DATASETS, n=1, cutoff=0.0)[0]
        raise BadSetting(f"there is no data set {name!r}; the nearest name is {nearest!r} (all: {', '.join(DATASETS)})")
    return DATASETS[name]


def folder() -> Path:
    """Return where data sets are looked for and kept: `DEEPMF_DATA` if set, otherwise the user's cache."""
    if given := os.environ.get("DEEPMF_DATA"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "deepmf"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "deepmf"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "deepmf"


def find(name: str) -> Path | None:
    """Return the copy of a data set that lies in `folder()` already, unpacked or as an archive; or None."""
    dataset = info(name)
    ratings = _first(_places(dataset, dataset.ratings.member))
    if ratings is None and dataset.positions is not None:
        ratings = _first(_places(dataset, dataset.positions))
    return ratings or _find_archive(dataset)


def fetch(name: str, *, progress: Progress | None = None) -> Path:
    """Return the file with the entries of a data set, which is downloaded and unpacked if need be.

    The downloaded archive stays in `folder()`.
    """
    dataset = info(name)
    found = find(name)
    if found is not None and found.name != dataset.archive:
        return found
    return _unpack(dataset, dataset.ratings.member, progress=progress)


def fetch_file(name: str, member: str, *, progress: Progress | None = None) -> Path:
    """Return a file of a data set by its path inside the archive, such as "ml-1m/users.dat", unpacked if need be."""
    dataset = info(name)
    return _first(_places(dataset, member)) or _unpack(dataset, member, progress=progress)


def load(name: str, *, progress: Progress | None = None) -> ObservedMatrix:
    """Return a data set as a matrix, on its publisher's scale and with its publisher's ids as labels."""
    return _read(info(name), fetch(name, progress=progress))


def load_split(name: str, *, progress: Progress | None = None) -> Split:
    """Return a data set in the parts that published results are measured on.

    ml-1m comes in the split of the authors of DMF-D; ml-100k as `u1.base` and `u1.test`, without validation.
    """
    dataset = info(name)
    split = dataset.split
    if split is None:
        known = ", ".join(other.name for other in DATASETS.values() if other.split is not None)
        raise BadSetting(f"{name} has no published split ({known} have one); split_entries makes one")
    matrix = load(name, progress=progress)
    members = (split.train, split.validation, split.test)
    paths = [None if m is None else _split_file(dataset, split.address, m, progress) for m in members]
    return split_from_masks(matrix, *(_mask(dataset, matrix, path) for path in paths))


def _places(dataset: Dataset, member: str) -> Iterator[Path]:
    """Yield where a file of a data set may lie, the publisher's own layout first."""
    path = PurePosixPath(member)
    inside = [PurePosixPath(dataset.name, path.name), PurePosixPath(dataset.name, path)]
    # A member at the top of its archive has no folder of its own: `ratings.csv` could be anyone's.
    layouts = inside if path.parent == PurePosixPath(".") else [path, *inside]
    for layout in layouts:
        for ending in ("",) if path.suffix == ".npz" else ("", ".gz", ".zst"):
            yield folder() / f"{layout}{ending}"


def _find_archive(dataset: Dataset) -> Path | None:
    return _first(iter([folder() / dataset.archive, folder() / dataset.name / dataset.archive]))


def _first(paths: Iterator[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)


def _unpack(dataset: Dataset, member: str, *, progress: Progress | None) -> Path:
    """Unpack one file of a data set; a downloaded archive is verified, the user's own is trusted."""
    target = folder() / dataset.name / PurePosixPath(member).name
    archive = _find_archive(dataset)
    if archive is not None:
        try:
            extract(archive, member, target)
        except UnreadableFile as error:
            raise UnreadableFile(f"{error}; replace it by {dataset.address}, or delete it") from error
        return target
    archive = folder() / dataset.archive
    download(dataset.address, archive, checksum=dataset.checksum, progress=progress)
    checksum = dataset.ratings.checksum if member == dataset.ratings.member else None
    try:
        extract(archive, member, target, checksum=checksum)
    except UnreadableFile as error:
        archive.unlink(missing_ok=True)
        raise DatasetUnavailable(
            f"{dataset.address} is not the archive that it should be ({error}), and was deleted; "
            f"put a copy that you trust at {archive}"
        ) from error
    return target


def _read(dataset: Dataset, path: Path) -> ObservedMatrix:
    from deepmf.data.read import read_matrix, read_npz

    if path.suffix == ".npz":
        entries = read_npz(path).tocoo()
        # Ids count from 1; columns without an entry are not in the publisher's file, so not here either.
        return ObservedMatrix.from_entries(entries.row + 1, entries.col + 1, entries.data, dataset.scale)
    ratings = dataset.ratings
    return read_matrix(
        path,
        row=ratings.row,
        column=ratings.column,
        value=ratings.value,
        separator=ratings.separator,
        scale=dataset.scale,
        duplicates=ratings.duplicates,
    )


def _split_file(dataset: Dataset, address: str, member: str, progress: Progress | None) -> Path:
    if address == dataset.address:
        return fetch_file(dataset.name, member, progress=progress)
    found = _first(_places(dataset, member))
    if found is not None:
        return found
    raise DatasetUnavailable(
        f"the published split of {dataset.name} needs {PurePosixPath(member).name}; "
        f"download it from {address} and put it at {folder() / member}"
    )


def _mask(dataset: Dataset, matrix: ObservedMatrix, path: Path | None) -> scipy.sparse.coo_array:
    """Return a mask of the matrix's shape that is true at the entries named by a file."""
    if path is None:
        return scipy.sparse.coo_array(matrix.shape, dtype=bool)
    pairs = _pairs(dataset, path)
    try:
        places = matrix.rows.positions(pairs.rows), matrix.columns.positions(pairs.columns)
    except UnknownLabel as error:
        raise BadSplit(f"{path} does not belong to this matrix: {error}") from error
    return scipy.sparse.coo_array((np.ones(pairs.rows.size, dtype=bool), places), shape=matrix.shape)


def _pairs(dataset: Dataset, path: Path) -> _Pairs:
    from deepmf.data.read import read_npz

    if path.suffix != ".npz":
        entries = _read(dataset, path).entries()
        return _Pairs(entries.rows, entries.columns)
    mask = read_npz(path).tocoo()
    named = mask.data.astype(bool)
    return _Pairs(mask.row[named] + 1, mask.col[named] + 1)
