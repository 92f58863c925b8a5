"""The benchmark of features: what is given of new rows and columns, and when."""

from typing import Any

import features
import pytest

from deepmf.datasets import generate
from deepmf.errors import NothingObserved
from deepmf.matrix.features import Features
from deepmf.models.means import Means

GIVEN: list[tuple[str, set[Any]]] = []


class Recording(Means):
    """Means that note whose features came at which call."""

    def fit(self, train: Any, validation: Any = None, **given: Any) -> Any:
        GIVEN.append(("fit", set(given["row_features"].labels.tolist())))
        return super().fit(train, validation, **given)

    def extend(self, new: Any = None, *, row_features: Features | None = None, **given: Any) -> Any:
        if row_features is not None:
            GIVEN.append(("extend", set(row_features.labels.tolist())))
        return super().extend(new, row_features=row_features, **given)


@pytest.mark.filterwarnings(f"ignore::{NothingObserved.__module__}.{NothingObserved.__name__}")
def test_features_of_new_rows_come_with_their_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    rated = generate(60, 40, density=0.3, explained=0.5, seed=0)
    assert rated.row_features is not None and rated.column_features is not None
    monkeypatch.setattr(features, "load", lambda name: rated.matrix)
    monkeypatch.setattr(features, "model_class", lambda name: Recording)
    described = {"row_features": rated.row_features, "column_features": rated.column_features}
    GIVEN.clear()
    found = features.measure("any", "means", 0, "test", described, {})
    (_, at_fit), *later = GIVEN
    assert [call for call, _ in GIVEN] == ["fit"] + ["extend"] * (1 + len(features.COUNTS))
    assert len(at_fit) == 48  # a fifth is new
    assert all(labels == set(rated.row_features.labels.tolist()) - at_fit for _, labels in later)
    assert set(found["areas"]) == {"I", "II", "III", "IV"} and found["rows"]["0"] > 0
