"""What a service exports: the entries of a model's file with all that it learned since, and features that came."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepmf.errors import BadFeatures, FileAbsent
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import Entries
from deepmf.models.model import Model
from deepmf.serve.database import open_database
from deepmf.serve.entry_database import EntryDatabase
from deepmf.serve.replay import replayed
from deepmf.serve.served_features import AxisName, FeatureChanges, axis_features, together
from deepmf.serve.snapshot import Snapshot


class Exported(NamedTuple):
    """All entries that a service knows, and the features that rows and columns were given since training.

    Features are as they were given, those that the model does not read too; None where none came. Of those that its
    file has, a model knows what it reads of them alone, such as the year of a date: they are in no export.
    """

    entries: Entries
    row_features: Features | None
    column_features: Features | None


def exported(model: Model, url: str) -> Exported:
    """Return what a service with this model and database exports, and remember that it was exported."""
    if "://" not in url and not Path(url).is_file():
        raise FileAbsent(f"there is no database {url}; --database names the one that the service was started with")
    database = EntryDatabase(open_database(url))
    try:
        with database.reading() as transaction:
            with database.writing() as marking:  # for a moment: what is written while entries are read waits for nobody
                marking.lock()
                marking.mark_exported()
                transaction.state()  # from here on it sees what the mark is of
            snapshot = replayed(Snapshot.of(model), transaction)
            came = transaction.all_features()
    finally:
        database.close()
    return Exported(
        current_entries(snapshot.model), _given_features(model, came, "row"), _given_features(model, came, "column")
    )


def _given_features(model: Model, came: FeatureChanges, axis: AxisName) -> Features | None:
    """Return the features that came for an axis, of the kinds that the model has them as, where they can be."""
    features, known = together(came, axis), axis_features(model, axis)
    if features is None or known is None:
        return features
    kinds = known.encoding.kinds
    return features.with_kinds({name: kinds[name] for name in features.names if _can_be(features, name, kinds)})


def _can_be(features: Features, name: str, kinds: Mapping[str, str]) -> bool:
    if name not in kinds:
        return False
    try:
        features.with_kinds({name: kinds[name]}).values(name)
    except BadFeatures:
        return False
    return True


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
