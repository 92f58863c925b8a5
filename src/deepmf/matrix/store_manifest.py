"""The manifest of a store: what a folder of mapped arrays holds, as JSON, written last and checked first."""

from __future__ import annotations

import json
import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepmf.errors import UnreadableFile, UserError
from deepmf.matrix.array_file import TYPES
from deepmf.matrix.scale import Scale
from deepmf.matrix.table_form import TableForm

MANIFEST = "manifest.json"
KIND = "deepmf store"
FORMAT = 1

_COUNTS = ("n_rows", "n_columns", "n_entries")
_MOST_BYTES = 1 << 20  # of a manifest


@dataclass(frozen=True)
class StoreManifest:
    """What a store holds.

    labels: for each axis, the kind of its labels and whether they rise.
    table: the value of each code, where values are stored as codes, and how many entries have it.
    parts: for each file, the type and the number of its elements and their checksum (CRC-32).
    """

    n_rows: int
    n_columns: int
    n_entries: int
    mean: float | None
    scale: Scale
    form: TableForm
    labels: Mapping[str, Mapping[str, Any]]
    table: list[float] | None
    parts: Mapping[str, Mapping[str, Any]]

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder whose parts are written."""
        content = {
            "kind": KIND,
            "format": FORMAT,
            **{name: getattr(self, name) for name in _COUNTS},
            "mean": self.mean,
            "scale": _scale_content(self.scale),
            "form": self.form.to_dict(),
            "labels": self.labels,
            "table": self.table,
            "parts": self.parts,
        }
        (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> StoreManifest:
    """Read the manifest of a store; a folder that is none, or one of a newer version, is refused in one sentence."""
    content = _content(folder)
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UnreadableFile(f"{folder} is not a store: its {MANIFEST} does not say so")
    number: Any = content.get("format")
    if not _is_count(number):
        raise _damaged(folder, "format", number)
    if number != FORMAT:
        raise UnreadableFile(
            f"{folder} is a store of format {number}; this version of deepmf reads format {FORMAT}"
            + (", and a newer one wrote it" if number > FORMAT else "")
        )
    for name in _COUNTS:
        if not _is_count(content.get(name)):
            raise _damaged(folder, name, content.get(name))
    return StoreManifest(
        **{name: content[name] for name in _COUNTS},
        mean=_number_or_none(folder, content.get("mean")),
        scale=_scale(folder, content.get("scale")),
        form=_form(folder, content.get("form")),
        labels=_labels(folder, content.get("labels")),
        table=_table(folder, content.get("table")),
        parts=_parts(folder, content.get("parts")),
    )


def _content(folder: Path) -> Any:
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        return json.loads(text if len(text) <= _MOST_BYTES else "")
    except FileNotFoundError as error:
        raise UnreadableFile(
            f"{folder} is a directory without a {MANIFEST}; a file, or a store that deepmf pack wrote, is needed"
        ) from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{folder} is not a whole store: its {MANIFEST} is damaged") from error


def _scale_content(scale: Scale) -> dict[str, Any]:
    if scale.levels is not None:
        return {"levels": scale.levels.tolist()}
    return {"low": scale.low, "high": scale.high} | ({} if scale.is_bounded else {"bounded": False})


def _scale(folder: Path, content: Any) -> Scale:
    try:
        if not isinstance(content, dict) or content.keys() - {"bounded"} not in ({"levels"}, {"low", "high"}):
            raise _damaged(folder, "scale", content)
        return Scale(**content)
    except (UserError, TypeError) as error:
        raise _damaged(folder, "scale", content) from error


def _form(folder: Path, content: Any) -> TableForm:
    form = TableForm.from_dict(content)
    if form is None:
        raise _damaged(folder, "form", content)
    return form


def _labels(folder: Path, content: Any) -> dict[str, dict[str, Any]]:
    if (
        not isinstance(content, dict)
        or content.keys() != {"row", "column"}
        or not all(
            isinstance(each, dict) and isinstance(each.get("kind"), str) and isinstance(each.get("sorted"), bool)
            for each in content.values()
        )
    ):
        raise _damaged(folder, "labels", content)
    return content


def _table(folder: Path, content: Any) -> list[float] | None:
    if content is None:
        return None
    if not isinstance(content, list) or not content or not all(map(_is_number, content)):
        raise _damaged(folder, "table", content)
    return [float(each) for each in content]


def _parts(folder: Path, content: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(content, dict) or not all(
        isinstance(part, dict)
        and isinstance(part.get("type"), str)
        and part["type"] in TYPES
        and _is_count(part.get("length"))
        and _is_count(part.get("checksum"))
        for part in content.values()
    ):
        raise _damaged(folder, "parts", content)
    return content


def _number_or_none(folder: Path, content: Any) -> float | None:
    if content is not None and not _is_number(content):
        raise _damaged(folder, "mean", content)
    return None if content is None else float(content)


def _is_number(content: Any) -> bool:
    return type(content) in (int, float) and abs(content) <= sys.float_info.max


def _is_count(content: Any) -> bool:
    return type(content) is int and 0 <= content < 2**63


def _damaged(folder: Path, name: str, found: Any) -> UnreadableFile:
    return UnreadableFile(f"{folder} is not a whole store: its {MANIFEST} has {reprlib.repr(found)} as {name!r}")
