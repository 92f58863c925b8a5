"""myFM: Bayesian factorisation machines (Gibbs sampling) on ids, on which entries there are, and on
features.

`implicit` adds to a row the columns it has entries in and to a column the rows, each normalised by
the square root of their number: SVD++ with flipped implicit features, as in the authors' script for
MovieLens-1M. A row or column without training entries has no id of its own: what is left of it are
its features, and which entries describe it. With `refit` a machine is sampled anew for each
question, from training entries and all that has become known since.
"""

from typing import Any, NamedTuple

import exchange
import myfm
import numpy as np
import numpy.typing as npt
import scipy.sparse
from myfm import RelationBlock


class Machine(NamedTuple):
    """A fitted machine, and the entries that it was fitted to."""

    fitted: Any
    known: exchange.Entries
    settings: exchange.Settings


def fit(task: exchange.Task, settings: exchange.Settings) -> Machine:
    """Sample a machine from training and validation entries."""
    return sample_machine(task, settings, task.known)


def sample_machine(
    task: exchange.Task, settings: exchange.Settings, known: exchange.Entries
) -> Machine:
    """Sample a machine for real values, or one of ordered levels (`ordered`), from some entries."""
    blocks, groups = describe_values(task, settings, known, known, (known.rows, known.columns))
    options: dict[str, Any] = {"n_iter": settings["iterations"], "group_shapes": groups}
    if "kept" in settings:
        options["n_kept_samples"] = settings["kept"]
    if settings.get("ordered"):
        machine = myfm.MyFMOrderedProbit(rank=settings["rank"], random_seed=settings.get("seed", 0))
        values: npt.NDArray[Any] = np.searchsorted(task.levels, known.values).astype(np.int64)
    else:
        machine = myfm.MyFMRegressor(rank=settings["rank"], random_seed=settings.get("seed", 0))
        values = known.values
    return Machine(machine.fit(None, values, X_rel=blocks, **options), known, settings)


def reply(model: Machine, task: exchange.Task, question: exchange.Question) -> exchange.Answer:
    """Predict by ids, features and entries, those of the extension included."""
    settings, seen = model.settings, exchange.join(task.known, question.extension)
    if settings.get("refit") and question.extension.rows.size:
        model = sample_machine(task, settings, seen)
    blocks, _ = describe_values(
        task, settings, model.known, seen, (question.rows, question.columns)
    )
    if settings.get("ordered"):
        chances = model.fitted.predict_proba(
            None, X_rel=blocks, n_workers=settings.get("workers", 2)
        )
        return exchange.Answer(chances @ task.levels, chances)
    return exchange.Answer(
        model.fitted.predict(None, X_rel=blocks, n_workers=settings.get("workers", 2))
    )


def describe_values(
    task: exchange.Task,
    settings: exchange.Settings,
    trained: exchange.Entries,
    seen: exchange.Entries,
    pairs: tuple[exchange.Positions, exchange.Positions],
) -> tuple[list[RelationBlock], list[int]]:
    """Return the blocks of rows and of columns for some pairs, and the sizes of the groups of their
    features.

    Ids count where there were entries in training. Of the entries that were seen, a row is told
    those in trained columns, a column those in trained rows: of the others nothing was learned.
    """
    of_rows, of_columns = np.isin(seen.columns, trained.columns), np.isin(seen.rows, trained.rows)
    filled = [seen.take(some).sparse(task.shape) for some in (of_rows, of_columns)]
    row_parts, row_groups = _parts(
        trained.rows, filled[0].tocsr(), settings, task.row_features, task.row_groups
    )
    column_parts, column_groups = _parts(
        trained.columns, filled[1].T.tocsr(), settings, task.column_features, task.column_groups
    )
    return [_block(pairs[0], row_parts), _block(pairs[1], column_parts)], [
        *row_groups,
        *column_groups,
    ]


def _parts(
    trained: exchange.Positions,
    filled: scipy.sparse.csr_matrix,
    settings: exchange.Settings,
    features: scipy.sparse.csr_matrix | None,
    groups: list[int],
) -> tuple[scipy.sparse.csr_matrix, list[int]]:
    """Return what describes each row (or column): its id, which entries it has, its features."""
    count = filled.shape[0]
    has_id = np.isin(np.arange(count), trained).astype(np.float64)
    parts, sizes = [scipy.sparse.diags(has_id)], [count]
    if settings.get("implicit"):
        present = filled.copy()
        present.data = np.repeat(
            1.0 / np.sqrt(np.maximum(np.diff(filled.indptr), 1)), np.diff(filled.indptr)
        )
        parts.append(present)
        sizes.append(filled.shape[1])
    if settings.get("features") and features is not None:
        parts.append(features)
        sizes += groups
    return scipy.sparse.hstack(parts, format="csr"), sizes


def _block(positions: exchange.Positions, described: scipy.sparse.csr_matrix) -> RelationBlock:
    unique, places = np.unique(positions, return_inverse=True)
    return RelationBlock(places.tolist(), described[unique])


if __name__ == "__main__":
    exchange.main(fit, reply, packages=["myfm", "numpy"])
