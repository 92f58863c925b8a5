"""Errors by column: against a plain restatement, and where they are known."""

import numpy as np
import pytest

from deepmf.data.splits import split_entries
from deepmf.data.synthetic.generator import generate
from deepmf.evaluation.area_evaluation import evaluate
from deepmf.evaluation.columns import column_errors
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.means import Means


def test_each_column_by_itself() -> None:
    split = split_entries(generate(60, 40, density=0.3, seed=0).matrix, train=0.7, validation=0.0, test=0.3, seed=0)
    model = Means().fit(split.train)
    errors = column_errors(model, split.test)
    rows, columns, values = split.test.entries()
    assert errors.labels.tolist() == [name for name in split.test.column_labels.tolist() if name in set(columns)]
    assert errors.n_entries.sum() == split.test.n_entries
    for label, n_entries, rmse, uncertainty in zip(*vars(errors).values(), strict=True):
        inside = columns == label
        squares = (model.predict(rows[inside], columns[inside]) - values[inside]) ** 2
        assert n_entries == inside.sum()
        assert rmse == pytest.approx(np.sqrt(squares.mean()))
        if n_entries > 1:
            assert uncertainty == pytest.approx(squares.std(ddof=1) / np.sqrt(n_entries) / (2 * rmse))
    overall = np.sqrt(np.average(errors.rmse**2, weights=errors.n_entries))
    assert overall == pytest.approx(evaluate(model, split.test)[-1].rmse)


def test_no_error_has_no_uncertainty_and_one_entry_does_not_tell_it() -> None:
    stars = Scale([1, 2, 3, 4, 5])
    model = Means().fit(ObservedMatrix.from_array(np.full((3, 4), 3.0), stars))  # answers 3 everywhere
    test = ObservedMatrix.from_entries([0, 1, 2], [0, 0, 3], [3, 3, 5], stars, column_labels=range(4))
    errors = column_errors(model, test)
    assert errors.labels.tolist() == [0, 3]
    assert errors.n_entries.tolist() == [2, 1]
    assert errors.rmse.tolist() == [0, 2]
    assert errors.uncertainty[0] == 0
    assert np.isnan(errors.uncertainty[1])
