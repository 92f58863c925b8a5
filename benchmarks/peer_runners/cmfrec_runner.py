"""cmfrec: collective matrix factorisation by alternating least squares, with or without features.

New rows get factors from their entries and features (`factors_multiple`), new columns the same by
the model with rows and columns swapped; where both are new, the two are multiplied.
"""

from typing import Any, NamedTuple

import exchange
import numpy as np
import scipy.sparse
from cmfrec import CMF


class Factors(NamedTuple):
    """The vectors and the biases of all rows, or of all columns."""

    vectors: exchange.Floats
    biases: exchange.Floats


class Fitted(NamedTuple):
    """A fitted model and its mirror image, and the factors of what it was trained on."""

    model: CMF
    mirrored: CMF
    rows: Factors
    columns: Factors
    with_features: bool


def fit(task: exchange.Task, settings: exchange.Settings) -> Fitted:
    """Fit to the entries of rows and columns that have any; the others keep their features for
    later."""
    with_features = bool(settings.get("features"))
    options = {name: value for name, value in settings.items() if name != "features"}
    model = CMF(**{"verbose": False, "produce_dicts": False, "handle_interrupt": False} | options)
    known = task.known
    sides = {}
    if with_features:
        sides = {
            "U": _dense(task.row_features, known.rows),
            "I": _dense(task.column_features, known.columns),
        }
    model.fit(known.sparse(task.shape), **sides)
    rows = Factors(model.A_, _biases(model.user_bias_, task.shape[0]))
    columns = Factors(model.B_, _biases(model.item_bias_, task.shape[1]))
    return Fitted(model, model.swap_users_and_items(), rows, columns, with_features)


def reply(fitted: Fitted, task: exchange.Task, question: exchange.Question) -> exchange.Answer:
    """Give new rows and columns factors, and predict by the inner product."""
    known = task.known
    extension = question.extension.sparse(task.shape).tocsr()
    new_rows = np.setdiff1d(question.rows, known.rows)
    new_columns = np.setdiff1d(question.columns, known.columns)
    row_features = task.row_features if fitted.with_features else None
    column_features = task.column_features if fitted.with_features else None
    rows = _fold(fitted.model, fitted.rows, new_rows, extension, row_features)
    columns = _fold(
        fitted.mirrored, fitted.columns, new_columns, extension.T.tocsr(), column_features
    )
    at_rows, at_columns = question.rows, question.columns
    products = np.einsum("ij,ij->i", rows.vectors[at_rows], columns.vectors[at_columns])
    return exchange.Answer(
        products + rows.biases[at_rows] + columns.biases[at_columns] + fitted.model.glob_mean_
    )


def _fold(
    model: CMF,
    trained: Factors,
    new: exchange.Positions,
    entries: scipy.sparse.csr_matrix,
    features: scipy.sparse.csr_matrix | None,
) -> Factors:
    """Return the factors of all, those of new rows computed from their entries and features."""
    vectors, biases = trained.vectors.copy(), trained.biases.copy()
    vectors[new], biases[new] = 0.0, 0.0
    if features is None:
        new = new[np.diff(entries.indptr)[new] > 0]
    if new.size:
        sides = {} if features is None else {"U": features[new].toarray()}
        found = model.factors_multiple(X=entries[new], return_bias=True, **sides)
        vectors[new] = found[0]
        # it has none where it was fitted without
        biases[new] = found[1] if np.size(found[1]) else 0.0
    return Factors(vectors, biases)


def _dense(
    features: scipy.sparse.csr_matrix | None, trained: exchange.Positions
) -> exchange.Floats:
    """Return the features of what has training entries; unknown (NaN) for all others."""
    assert features is not None
    dense: exchange.Floats = features.toarray()
    dense[np.setdiff1d(np.arange(len(dense)), trained)] = np.nan
    return dense


def _biases(biases: Any, count: int) -> exchange.Floats:
    return (
        np.zeros(count)
        if biases is None or len(biases) == 0
        else np.asarray(biases, dtype=np.float64)
    )


if __name__ == "__main__":
    exchange.main(fit, reply, packages=["cmfrec", "numpy"])
