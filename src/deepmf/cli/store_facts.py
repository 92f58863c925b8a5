"""What `deepmf inspect` shows of a store: its matrix, and its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deepmf.cli.output import scale_content, scale_words


def is_store(path: Path) -> bool:
    """Say whether a folder with the manifest of a store is there."""
    from deepmf.matrix.store_manifest import MANIFEST

    return (path / MANIFEST).is_file()


def store_facts(folder: Path, *, verified: bool) -> dict[str, Any]:
    """Return what is known of a store as plain values; one that is not whole, or damaged, is refused."""
    from deepmf.matrix.array_file import TYPES
    from deepmf.matrix.store_manifest import FORMAT, MANIFEST, read_manifest
    from deepmf.matrix.store_reader import open_store, verify_store

    open_store(folder)
    if verified:
        verify_store(folder)
    manifest = read_manifest(folder)
    files = {name: part["length"] * TYPES[part["type"]].itemsize for name, part in manifest.parts.items()}
    files[MANIFEST] = (folder / MANIFEST).stat().st_size
    return {
        "file": str(folder),
        "bytes": sum(files.values()),
        "format": FORMAT,
        "verified": verified,
        "rows": manifest.n_rows,
        "columns": manifest.n_columns,
        "entries": manifest.n_entries,
        "scale": scale_content(manifest.scale),
        "mean": manifest.mean,
        "values": manifest.parts["values"]["type"],
        "labels": {f"{axis}s": manifest.labels[axis]["kind"] for axis in ("row", "column")},
        "files": files,
    }


def store_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is known in words, line by line."""
    rows, columns = facts["labels"]["rows"], facts["labels"]["columns"]
    mean = "" if facts["mean"] is None else f", mean {facts['mean']:.4f}"
    checked = (
        "all of it matches its checksums"
        if facts["verified"]
        else "lengths are checked; --verify compares all with checksums"
    )
    coded = "codes of one byte" if facts["values"] == "uint8" else facts["values"]
    return [
        ("store", "{file}, {bytes:,} bytes, format {format}".format(**facts)),
        ("", checked),
        ("matrix", "{rows:,} rows x {columns:,} columns, {entries:,} entries".format(**facts)),
        ("scale", scale_words(facts["scale"])),
        ("values", f"{coded}{mean}"),
        ("labels", f"of rows {rows}, of columns {columns}"),
        ("files", ", ".join(f"{name} ({n_bytes:,} bytes)" for name, n_bytes in sorted(facts["files"].items()))),
    ]
