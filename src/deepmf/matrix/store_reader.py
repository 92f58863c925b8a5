"""Opening a store: its parts are checked against the manifest and mapped into memory, read-only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from deepmf.errors import UnreadableFile
from deepmf.matrix.array_file import TYPES, checksum, mapped
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.coded_values import MOST_CODES, CodedValues, code_counts, pieces
from deepmf.matrix.entry_orders import are_positions
from deepmf.matrix.label_kinds import AS_TEXT
from deepmf.matrix.labels import Labels
from deepmf.matrix.scale import Scale
from deepmf.matrix.store_manifest import StoreManifest, read_manifest
from deepmf.matrix.table_form import TableForm
from deepmf.matrix.text_labels import TextLabels

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix

NUMBERED = "numbered"  # the kind of labels that count from 0 and take no room

_INDEX = ("int32", "int64")
_VALUES = ("uint8", "float32", "float64")


class StoreOrigin(NamedTuple):
    """The store that a matrix comes from, and the size and the time of change of its files when they were opened.

    A part of a store has files without names, which nobody else can change.
    """

    folder: Path
    seen: Mapping[str, tuple[int, int]]

    def check_unchanged(self) -> None:
        """Refuse a store of which a file has another size or time of change than when it was opened."""
        for name, seen in self.seen.items():
            if _state(self.folder / name) != seen:
                raise UnreadableFile(f"{self.folder} was changed while it was open ({name}); read it again")


class StoreParts(NamedTuple):
    """What a store holds, as the parts of a matrix; the arrays are those of its files."""

    rows: Labels
    columns: Labels
    scale: Scale
    form: TableForm
    row_starts: IndexArray
    columns_by_row: IndexArray
    values: npt.NDArray[np.floating[Any]]
    column_starts: IndexArray
    rows_by_column: IndexArray
    entries_by_column: IndexArray
    mean: float
    origin: StoreOrigin


def check_unchanged(*matrices: ObservedMatrix | None) -> None:
    """Refuse matrices of stores that were changed since they were opened, before their entries are read."""
    for matrix in matrices:
        if matrix is not None and matrix.origin is not None:
            matrix.origin.check_unchanged()


def open_store(folder: Path) -> StoreParts:
    """Open a store; its manifest, and the presence and the length of every part, are checked."""
    return _Opening(folder).parts()


def verify_store(folder: Path) -> None:
    """Read all of a store and compare every part with its checksum."""
    opening = _Opening(folder)
    for name, part in opening.manifest.parts.items():
        if checksum(folder / name) != part["checksum"]:
            raise UnreadableFile(f"{folder} is damaged: the content of its part {name} does not match its checksum")
    check_entries(folder, opening.parts())


def check_entries(folder: Path, parts: StoreParts) -> None:
    """Refuse a store with an entry outside its rows, its columns or its scale; every entry is looked at once.

    Whatever computes with the entries takes them as they are: one outside would make it read other memory.
    """
    n_rows, n_columns, n_entries = len(parts.rows), len(parts.columns), parts.columns_by_row.size
    for name, array, count in (
        ("columns", parts.columns_by_row, n_columns),
        ("rows", parts.rows_by_column, n_rows),
        ("entries", parts.entries_by_column, n_entries),
    ):
        if not are_positions(array, count):
            raise UnreadableFile(f"{folder} is damaged: its part {name} has numbers outside 0 to {count - 1:,}")
    values: Any = parts.values
    if isinstance(values, CodedValues):
        if not are_positions(values.codes, values.table.size):
            raise UnreadableFile(f"{folder} is damaged: its part values has codes beyond its table")
        values = values.table[code_counts(values.codes, values.table.size) > 0]
    if not all(parts.scale.holds(piece).all() for piece in pieces(values)):
        raise UnreadableFile(f"{folder} is damaged: its part values has values that are not on its scale")


class _Opening:
    """A store that is being opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: StoreManifest = read_manifest(folder)
        self._seen = {name: self._checked_state(name) for name in self.manifest.parts}

    def parts(self) -> StoreParts:
        """Return the parts of a matrix."""
        manifest = self.manifest
        shape = manifest.n_rows, manifest.n_columns
        row_starts, column_starts = self._starts("row_starts", shape[0]), self._starts("column_starts", shape[1])
        return StoreParts(
            rows=self._labels("row", shape[0]),
            columns=self._labels("column", shape[1]),
            scale=manifest.scale,
            form=manifest.form,
            row_starts=row_starts,
            columns_by_row=self._array("columns", _INDEX, manifest.n_entries),
            values=self._values(),
            column_starts=column_starts,
            rows_by_column=self._array("rows", _INDEX, manifest.n_entries),
            entries_by_column=self._array("entries", _INDEX, manifest.n_entries),
            mean=float("nan") if manifest.mean is None else manifest.mean,
            origin=StoreOrigin(self.folder, self._seen),
        )

    def _checked_state(self, name: str) -> tuple[int, int]:
        part = self.manifest.parts[name]
        path = self.folder / name
        if Path(name).name != name:
            raise UnreadableFile(f"{self.folder} is not a whole store: {name!r} cannot be the name of a part")
        state = _state(path)
        if state is None:
            raise UnreadableFile(f"{self.folder} is not a whole store: its part {name} is missing")
        needed = part["length"] * TYPES[part["type"]].itemsize
        if state[0] != needed:
            raise UnreadableFile(
                f"{self.folder} is not a whole store: its part {name} has {state[0]:,} bytes instead of {needed:,}"
            )
        return state

    def _array(self, name: str, kinds: tuple[str, ...], length: int) -> npt.NDArray[Any]:
        part = self.manifest.parts.get(name)
        if part is None:
            raise UnreadableFile(f"{self.folder} is not a whole store: its part {name} is missing")
        if part["type"] not in kinds or part["length"] != length:
            raise UnreadableFile(
                f"{self.folder} is not a whole store: its part {name} has {part['length']:,} elements of "
                f"{part['type']}; {length:,} of {' or '.join(kinds)} are needed"
            )
        try:
            return mapped(self.folder / name, part["type"], length)
        except (OSError, ValueError) as error:
            raise UnreadableFile(f"{self.folder}: its part {name} cannot be read ({error})") from error

    def _starts(self, name: str, count: int, *, total: int | None = None) -> IndexArray:
        """Return where the entries of each row, column or label start, which must rise to their number."""
        starts = self._array(name, _INDEX, count + 1)
        total = self.manifest.n_entries if total is None else total
        if starts[0] != 0 or starts[-1] != total or np.any(starts[1:] < starts[:-1]):
            raise UnreadableFile(f"{self.folder} is damaged: its part {name} does not rise from 0 to {total:,}")
        return starts

    def _values(self) -> npt.NDArray[np.floating[Any]]:
        values = self._array("values", _VALUES, self.manifest.n_entries)
        if values.dtype != np.uint8:
            return values
        table = self.manifest.table
        if table is None or len(table) > MOST_CODES or table != sorted(set(table)):
            raise UnreadableFile(f"{self.folder} is not a whole store: its codes have no table of rising values")
        exact = np.array(table)
        single = exact.astype(np.float32)
        # Stands for an array: see there what is decoded when.
        coded = CodedValues(values, single if np.array_equal(single, exact) else exact)
        return cast("npt.NDArray[np.floating[Any]]", coded)

    def _labels(self, axis: str, count: int) -> Labels:
        kind, is_sorted = (self.manifest.labels[axis][name] for name in ("kind", "sorted"))
        if kind == NUMBERED:
            return Labels.numbered(count, axis=axis)
        if kind in ("int", "float"):
            return Labels.of_distinct(self._array(f"{axis}_labels", (f"{kind}64",), count), axis=axis)
        if kind not in AS_TEXT:
            raise UnreadableFile(f"{self.folder} has {axis} labels of the unknown kind {kind!r}")
        n_bytes = self.manifest.parts.get(f"{axis}_text", {}).get("length", 0)
        text = self._array(f"{axis}_text", ("uint8",), n_bytes)
        starts = self._starts(f"{axis}_text_starts", count, total=n_bytes)
        return TextLabels(text, starts, kind=kind, is_sorted=is_sorted, axis=axis)


def _state(path: Path) -> tuple[int, int] | None:
    """Return the size of a file and when it was last changed; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: what cannot be a name
        return None
    return found.st_size, found.st_mtime_ns
