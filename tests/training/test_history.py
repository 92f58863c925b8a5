"""A history in a line."""

import pytest

from deepmf.training.history import EpochRecord, History

RECORDS = [
    EpochRecord(0, 2.0, None, 0.1, 1.5, {"boundaries": [0.1, 0.2]}),
    EpochRecord(1, 1.5, 0.9, 0.05, 1.5),
    EpochRecord(2, float("inf"), 0.95, None, 1.5, {"gain": 0.5}),
]


@pytest.fixture
def history() -> History:
    return History(RECORDS, best_epoch=1, best_error=0.6858, stopped="patience", means_error=0.8311)


def test_a_line_however_many_epochs(history: History) -> None:
    assert repr(history) == (
        "History(3 epochs in 4.5 s; the validation error had stopped improving, validation RMSE 0.686; means 0.831)"
    )
    assert repr(History()) == "History(0 epochs in 0 s)"
    assert repr(History(RECORDS[:1])) == "History(1 epoch in 1.5 s)"
    assert len(repr(History(RECORDS * 1000))) < 60
