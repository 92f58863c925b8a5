"""The joined matrix: the entries of a model's file with everything that its service learned since."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepmf.errors import FileAbsent
from deepmf.matrix.matrix import Entries
from deepmf.models.model import Model
from deepmf.serve.database import open_database
from deepmf.serve.entry_database import EntryDatabase
from deepmf.serve.replay import replayed
from deepmf.serve.snapshot import Snapshot


def joined_entries(model: Model, url: str) -> Entries:
    """Return all entries that a service with this model and database knows, and remember that they were exported."""
    if "://" not in url and not Path(url).is_file():
        raise FileAbsent(f"there is no database {url}; --database names the one that the service was started with")
    database = EntryDatabase(open_database(url))
    try:
        with database.writing() as transaction:
            transaction.lock()
            snapshot = replayed(Snapshot.of(model), transaction)
            transaction.mark_exported()
    finally:
        database.close()
    return current_entries(snapshot.model)


def current_entries(model: Model) -> Entries:
    """Return the entries of training that were neither replaced nor forgotten, then those that came since."""
    store = model.entries_
    rows, columns, values = (np.delete(part, store.dropped) for part in store.train.entries())
    if store.added is None:
        return Entries(rows, columns, values)
    added = store.added
    return Entries(
        np.concatenate([rows, store.rows[added.rows]]),
        np.concatenate([columns, store.columns[added.columns]]),
        np.concatenate([values, added.values]),
    )
