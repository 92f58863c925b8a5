"""Public data sets by name: found on this machine or downloaded, read as a matrix or as a published
split."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import scipy.sparse

from deepmf.data.download import Checksum, download, extract
from deepmf.data.npz import read_npz
from deepmf.data.read import TextForm, read_matrix
from deepmf.data.splits import Split, split_from_masks
from deepmf.errors import (
    BadSetting,
    BadSplit,
    DatasetUnavailable,
    UnknownLabel,
    UnreadableFile,
    suggest_name,
)
from deepmf.files import Progress, read_toml
from deepmf.matrix.arrays import Array
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import Duplicates


@dataclass(frozen=True)
class RatingsFile:
    """The file of entries inside an archive, and the options with which `read_matrix` reads it."""

    member: str  # its path inside the archive
    row: str | int | None = None
    column: str | int | None = None
    value: str | int | None = None  # None: interactions
    separator: str | None = None
    form: TextForm = "entries"
    duplicates: Duplicates = "error"
    time: str | int | None = None


@dataclass(frozen=True)
class PublishedSplit:
    """A split with published results: three files, each a mask (`.npz`) or entries."""

    train: str
    test: str
    address: str
    validation: str | None = None


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A public data set: a zip archive at an address, which holds a file of entries.

    Without an archive, the user downloads the files of the published split, which are the data set
    together.
    """

    name: str
    title: str
    address: str
    licence: str
    scale: Scale
    row_name: str
    column_name: str
    ratings: RatingsFile
    # of the archive; None where the publisher gives none or changes the file
    checksum: Checksum | None = None
    n_bytes: int | None = None  # of the archive, about; None where unknown
    n_entries: int | None = None  # None where the publisher changes the file
    # the same entries as a scipy `.npz`, where row and column = id - first_id
    positions: str | None = None
    split: PublishedSplit | None = None
    first_id: int = 1
    has_archive: bool = True

    @property
    def archive(self) -> str:
        """The file name of the archive."""
        return self.address.rsplit("/", maxsplit=1)[-1]


def names() -> list[str]:
    """Return the names of all data sets.

    >>> names()[:2]
    ['ml-100k', 'ml-1m']
    """
    return list(DATASETS)


def info(name: str) -> Dataset:
    """Return a data set's address, licence, scale and size.

    >>> info("ml-1m").n_entries
    1000209
    """
    if name not in DATASETS:
        raise BadSetting(f"there is no data set {name!r}; {suggest_name(name, DATASETS)}")
    return DATASETS[name]


def folder() -> Path:
    """Return the folder of data sets: `DEEPMF_DATA` if set, otherwise the user's cache."""
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
    """Return the copy of a data set in `folder()`, unpacked or as an archive; None where there is
    none."""
    dataset = info(name)
    ratings = _find_first(_list_places(dataset, dataset.ratings.member))
    if ratings is None and dataset.positions is not None:
        ratings = _find_first(_list_places(dataset, dataset.positions))
    return ratings or _find_archive(dataset)


def fetch(name: str, *, progress: Progress | None = None) -> Path:
    """Return a data set's file of entries; download and unpack it if `folder()` does not have it.

    The downloaded archive stays in `folder()`.
    """
    dataset = info(name)
    file = find(name)
    if file is not None and file.name != dataset.archive:
        return file
    if not dataset.has_archive:
        raise _build_absent_error(dataset, dataset.ratings.member, dataset.address)
    return _unpack(dataset, dataset.ratings.member, progress=progress)


def fetch_file(name: str, member: str, *, progress: Progress | None = None) -> Path:
    """Return a file of a data set by its path in the archive, such as "ml-1m/users.dat"; download
    it if need be."""
    dataset = info(name)
    return _find_first(_list_places(dataset, member)) or _unpack(dataset, member, progress=progress)


def load(name: str, *, progress: Progress | None = None) -> ObservedMatrix:
    """Return a data set as a matrix with the publisher's scale and ids; download it if need be."""
    dataset = info(name)
    path = fetch(name, progress=progress)
    if dataset.has_archive or dataset.split is None:
        return _read_entries(dataset, path)
    test = _fetch_split_file(dataset, dataset.split.address, dataset.split.test, progress)
    pairs = [_read_pairs(dataset, file) for file in (path, test)]
    rows, columns = (np.concatenate(axis) for axis in zip(*pairs, strict=True))
    return ObservedMatrix.from_interactions(rows, columns)


def load_split(name: str, *, progress: Progress | None = None) -> Split:
    """Return a data set in the split of published results.

    ml-1m has the split of the authors of DMF-D; ml-100k has `u1.base` and `u1.test`, and gowalla,
    yelp2018 and amazon-book the files of LightGCN, without validation entries.
    """
    dataset = info(name)
    split = dataset.split
    if split is None:
        names = ", ".join(
            candidate.name for candidate in DATASETS.values() if candidate.split is not None
        )
        raise BadSetting(
            f"{name} has no published split ({names} have one); split_entries makes one"
        )
    matrix = load(name, progress=progress)
    members = (split.train, split.validation, split.test)
    paths = [
        None if m is None else _fetch_split_file(dataset, split.address, m, progress)
        for m in members
    ]
    return split_from_masks(matrix, *(_read_mask(dataset, matrix, path) for path in paths))


def load_sequences(name: str, *, progress: Progress | None = None) -> ObservedMatrix:
    """Return the columns of each row in the order of their times, without values; columns with
    fewer than five go.

    These are the data of leave-one-out tests of sequential models. A file `sequences.npz` beside
    the data set (users, lengths, items and last) is read instead of the dates of entries.
    """
    path = _find_first(_list_places(info(name), f"{name}/sequences.npz"))
    if path is None:
        dated = load(name, progress=progress)
        if dated.times is None:
            raise BadSetting(f"{name} has no dates here, and no sequences.npz")
        frequent = dated.take_entries(dated.column_counts[dated.by_row.columns] >= 5)
        plain = frequent.with_scale(Scale.interactions())
        return plain.take(np.arange(plain.shape[0]), np.flatnonzero(plain.column_counts))
    with np.load(path, allow_pickle=False) as stored:
        users, lengths, items, last = (
            stored[part].tolist() for part in ("users", "lengths", "items", "last")
        )
    ends = list(itertools.accumulate(lengths))
    parts = zip(users, lengths, ends, last, strict=True)
    return ObservedMatrix.from_sequences(
        {user: [*items[end - n : end], final] for user, n, end, final in parts}
    )


def _list_places(dataset: Dataset, member: str) -> Iterator[Path]:
    """Yield the paths at which a file of a data set may lie, the publisher's own layout first."""
    path = PurePosixPath(member)
    inside = [PurePosixPath(dataset.name, path.name), PurePosixPath(dataset.name, path)]
    # A member at the top of its archive has no folder of its own: `ratings.csv` could be anyone's.
    layouts = inside if path.parent == PurePosixPath(".") else [path, *inside]
    for layout in layouts:
        for ending in ("",) if path.suffix == ".npz" else ("", ".gz"):
            yield folder() / f"{layout}{ending}"


def _find_archive(dataset: Dataset) -> Path | None:
    return _find_first([folder() / dataset.archive, folder() / dataset.name / dataset.archive])


def _find_first(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)


def _unpack(dataset: Dataset, member: str, *, progress: Progress | None) -> Path:
    """Unpack a file of a data set; an archive of the user is trusted, a downloaded one is
    verified."""
    target = folder() / dataset.name / PurePosixPath(member).name
    stored_archive = _find_archive(dataset)
    archive = stored_archive or folder() / dataset.archive
    if stored_archive is None:
        download(dataset.address, archive, checksum=dataset.checksum, progress=progress)
    try:
        extract(archive, member, target)
    except UnreadableFile as error:
        if stored_archive is not None:
            raise UnreadableFile(
                f"{error}; replace it by {dataset.address}, or delete it"
            ) from error
        archive.unlink(missing_ok=True)
        raise DatasetUnavailable(
            f"{dataset.address} is not the archive that it should be ({error}), and was deleted; "
            f"put a copy that you trust at {archive}"
        ) from error
    return target


def _read_entries(dataset: Dataset, path: Path) -> ObservedMatrix:
    if path.suffix == ".npz":
        entries = read_npz(path)
        # Ids count from 1; columns without an entry are not in the publisher's file, so not here
        # either.
        rows = entries.row + dataset.first_id
        columns = entries.col + dataset.first_id
        return ObservedMatrix.from_entries(rows, columns, entries.data, dataset.scale)
    options = {name: value for name, value in vars(dataset.ratings).items() if name != "member"}
    return read_matrix(path, scale=dataset.scale, **options)


def _fetch_split_file(
    dataset: Dataset, address: str, member: str, progress: Progress | None
) -> Path:
    if address == dataset.address and dataset.has_archive:
        return fetch_file(dataset.name, member, progress=progress)
    members = (
        [member]
        if dataset.has_archive
        else [member, str(PurePosixPath(member).with_suffix(".npz"))]
    )
    file = next(filter(None, (_find_first(_list_places(dataset, name)) for name in members)), None)
    if file is not None:
        return file
    raise _build_absent_error(dataset, member, address)


def _build_absent_error(dataset: Dataset, member: str, address: str) -> DatasetUnavailable:
    return DatasetUnavailable(
        f"the published split of {dataset.name} needs {PurePosixPath(member).name}; "
        f"download it from {address} and put it at {folder() / member}"
    )


def _read_mask(
    dataset: Dataset, matrix: ObservedMatrix, path: Path | None
) -> scipy.sparse.coo_array:
    """Return a mask of the matrix's shape that is true at the entries of a file."""
    if path is None:
        return scipy.sparse.coo_array(matrix.shape, dtype=bool)
    rows, columns = _read_pairs(dataset, path)
    try:
        places = matrix.rows.positions(rows), matrix.columns.positions(columns)
    except UnknownLabel as error:
        raise BadSplit(f"{path} does not belong to this matrix: {error}") from error
    return scipy.sparse.coo_array((np.ones(rows.size, dtype=bool), places), shape=matrix.shape)


def _read_pairs(dataset: Dataset, path: Path) -> tuple[Array, Array]:
    """Return the row and column labels of the entries of a file."""
    if path.suffix != ".npz":
        entries = _read_entries(dataset, path).entries()
        return entries.rows, entries.columns
    mask = read_npz(path)
    named = mask.data.astype(bool)
    return mask.row[named] + dataset.first_id, mask.col[named] + dataset.first_id


def _read_registry() -> dict[str, Dataset]:
    """Return the data sets of `datasets.toml` by name; `{name}` in their texts is the name."""
    tables = read_toml(Path(__file__).with_name("datasets.toml"))
    families = tables.pop("families")
    return {
        name: _make_dataset(name, families.get(table.pop("like", ""), {}) | table)
        for name, table in tables.items()
    }


def _make_dataset(name: str, table: dict[str, Any]) -> Dataset:
    facts = _fill_in(table, name)
    levels, checksum, split = (facts.pop(key, None) for key in ("levels", "checksum", "split"))
    return Dataset(
        name=name,
        scale=Scale(levels=levels) if levels else Scale.interactions(),
        checksum=checksum and Checksum(**checksum),
        split=split and PublishedSplit(**split),
        ratings=RatingsFile(**facts.pop("ratings")),
        **facts,
    )


def _fill_in(item: Any, name: str) -> Any:
    if isinstance(item, dict):
        return {key: _fill_in(value, name) for key, value in item.items()}
    return item.replace("{name}", name) if isinstance(item, str) else item


DATASETS: dict[str, Dataset] = _read_registry()
