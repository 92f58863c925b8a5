"""`deepmf inspect`: show the content of a model, a store or a file of entries."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deepmf.cli.inputs import InputOptions, open_input
from deepmf.cli.options import Json, ScaleText, argument, option, with_option_groups
from deepmf.cli.output import STANDARD, say, show_json
from deepmf.cli.settings import format_value, parse_scale
from deepmf.errors import FileAbsent

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.training.history import History

_OWN_ENDINGS = (".safetensors", ".model", ".store")  # of models and stores, also damaged ones


@with_option_groups()
def inspect(
    file: Annotated[
        Path,
        argument(
            "FILE", "Model, store or file of entries, or name of a data set; - for standard input."
        ),
    ],
    verified: Annotated[
        bool,
        option(
            "--verify",
            "Compare a memory-mapped file with its checksum; for other files this is always done.",
        ),
    ] = False,
    scale: ScaleText = None,
    *,
    reading: InputOptions,
    as_json: Json = False,
) -> None:
    """Show what a model, a store or a file of entries holds.

    Of a model: its settings, the matrix, the training, and what was added since. Of a store: the
    matrix. Of entries, read as by fit: the size, the scale, the values, and the first entries.

    Example: deepmf inspect model.safetensors

    Or: deepmf inspect ratings.csv
    """
    from deepmf.storage.model_file import is_own_file

    if not file.exists() and not file.suffix and str(file) != STANDARD:
        _show_entries(_load_dataset(str(file)), as_json=as_json)
        return
    with open_input(file) as opened:
        if is_own_file(opened) or file.suffix.lower() in _OWN_ENDINGS:
            _show_own_file(opened, file, verified=verified, as_json=as_json)
            return
        matrix = reading.read_opened(opened, file, scale=parse_scale(scale))
    _show_entries(matrix, as_json=as_json)


def _load_dataset(name: str) -> ObservedMatrix:
    """Load a data set that is stored; nothing is downloaded."""
    from deepmf.data.datasets import DATASETS, find, load

    if name not in DATASETS:
        raise FileAbsent(
            f"there is no file {name}, and no data set of that name (see deepmf datasets list)"
        )
    if find(name) is None:
        raise FileAbsent(
            f"the data set {name} is not stored yet; download it with deepmf datasets fetch {name}"
        )
    return load(name)


def _show_entries(matrix: ObservedMatrix, *, as_json: bool) -> None:
    """Show a description of entries, and the first of them."""
    import numpy as np

    first = matrix.take_entries(np.arange(min(3, matrix.n_entries))).to_frame()
    description = matrix.describe()
    if as_json:
        entries = [list(map(str, entry)) for entry in first.rows()]
        show_json(description.to_dict() | {"fields": first.columns, "first": entries})
        return
    say(str(description))
    say(f"first entries ({', '.join(first.columns)}):")
    for entry in first.rows():
        say(", ".join(map(str, entry)))


def _show_own_file(opened: Path, file: Path, *, verified: bool, as_json: bool) -> None:
    """Show what a model or a store holds."""
    from deepmf.storage.model_file import FORMAT, map_file

    stored = map_file(opened)
    facts: dict[str, Any] = {
        "file": str(file),
        "bytes": opened.stat().st_size,
        "format": FORMAT,
        "version": stored.version,
    }
    describe = _describe_store if stored.kind == "matrix" else _describe_model
    facts |= describe(opened, verified=verified)
    if as_json:
        show_json(facts)
        return
    # what was chosen stands in a line of its own
    shown = facts | {"settings": _leave_out(facts.get("settings", {}), facts.get("chosen", {}))}
    for name, text in list_facts(shown):
        line = f"{name:<20}{text}"
        say(textwrap.fill(line, 110, subsequent_indent=" " * 20, break_on_hyphens=False))
    if not facts["verified"]:
        say("values were not compared with their checksums, as --verify does")


def _leave_out(facts: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if name not in others}


def list_facts(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a line for each fact that is not empty: its name, and its values; a group inside a group
    has lines of its own.

    >>> list(list_facts({"model": "DMF", "chosen": {"epochs": 3, "members": {"network": 1.0}}}))
    [('model', 'DMF'), ('chosen', 'epochs=3'), ('chosen members', 'network=1.0')]
    """
    for name, fact in facts.items():
        title = name.replace("_", " ")
        if isinstance(fact, Mapping):
            words = (
                f"{key}={format_value(item)}"
                for key, item in fact.items()
                if item is not None and not isinstance(item, Mapping)
            )
            yield from filter(itemgetter(1), [(title, " ".join(words))])
            groups = {key: item for key, item in fact.items() if isinstance(item, Mapping)}
            yield from ((f"{title} {key}", text) for key, text in list_facts(groups))
        elif isinstance(fact, list):
            yield (
                title,
                " ".join(f"{item:.4f}" if isinstance(item, float) else item for item in fact),
            )
        elif fact is not None:
            yield title, f"{fact:,}" if type(fact) is int else str(fact)


def _describe_model(path: Path, *, verified: bool) -> dict[str, Any]:
    import numpy as np

    from deepmf.matrix.description import scale_to_json
    from deepmf.models.loading import load, verify
    from deepmf.storage.model_file import is_mapped

    model = verify(path) if verified else load(path)
    entries, history = model.entries_, model.history_
    n_rows, n_columns = entries.train.shape
    axes = {
        "rows": (entries.row_features, entries.rows),
        "columns": (entries.column_features, entries.columns),
    }
    features = {
        axis: {
            "kinds": axis_features.encoding.kinds,
            "inputs": axis_features.n_inputs,
            # rows or columns that have any
            "known": int(axis_features.take(np.arange(len(labels))).are_known.sum()),
        }
        for axis, (axis_features, labels) in axes.items()
        if axis_features
    }
    extension = entries.extension and {
        "new_rows": len(entries.rows) - n_rows,
        "new_columns": len(entries.columns) - n_columns,
        "entries": entries.extension.n_entries,
    }
    return {
        "verified": verified or not is_mapped(path, path.stat().st_size),
        "model": type(model).__name__,
        "predicts": list(model.predicts),
        "settings": model.settings.to_dict(),
        "chosen": model.chosen_,
        # With few entries, none are held out.
        "chosen_on_entries": model.chosen_on_entries_ if history.stages else {},
        "scale": scale_to_json(model.scale_),
        "rows": n_rows,
        "columns": n_columns,
        "entries": entries.train.n_entries,
        "dropped": int(entries.dropped.size),  # replaced or forgotten since training
        "features": features,
        "names": {"rows": len(model.row_names_), "columns": len(model.column_names_)},
        "training": describe_history(history)
        | {
            "last_loss": history.records[-1].loss if history.records else None,
            "stopped": history.stopped or None,
        },
        "boundaries": model.boundaries_.tolist() if hasattr(model, "boundaries_") else None,
        "extension": extension,
    }


def describe_history(history: History) -> dict[str, Any]:
    """Return the length and the errors of a training as JSON content."""
    return {
        "epochs": len(history),
        # counted from 1
        "best_epoch": None if history.best_epoch is None else history.best_epoch + 1,
        "validation_rmse": history.best_error,
        "means_rmse": history.means_error,
        "stages": history.stages,
        "stopped": history.stopped,
    }


def format_kinds(kinds: Mapping[str, str]) -> str:
    """Return the names of features with their kinds."""
    return ", ".join(f"{name} ({kind})" for name, kind in kinds.items())


def _describe_store(path: Path, *, verified: bool) -> dict[str, Any]:
    """Return the facts about a store as JSON content; an incomplete or damaged store is an
    error."""
    from deepmf.matrix.description import scale_to_json
    from deepmf.matrix.labels import find_stored_kind
    from deepmf.matrix.stored import open_store, verify_store

    matrix = (verify_store if verified else open_store)(path)
    return {
        "verified": verified,
        "rows": len(matrix.rows),
        "columns": len(matrix.columns),
        "entries": matrix.values.size,
        "scale": scale_to_json(matrix.scale),
        "mean": None if math.isnan(matrix.mean) else matrix.mean,
        "values": matrix.values.dtype.name,
        "labels": {
            f"{axis.axis}s": find_stored_kind(axis) for axis in (matrix.rows, matrix.columns)
        },
    }
