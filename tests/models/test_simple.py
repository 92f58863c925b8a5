"""Simple models: the code of "Write your own model", as it stands there, passes the contract of all
models."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from deepmf import load
from deepmf.models.registry import MODELS, Registration, model_class
from deepmf.testing import ModelContract, additive

PAGE = (Path(__file__).parents[2] / "docs" / "new_model.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]


def import_toy_model() -> ModuleType:
    """Import the first Python block of the page as a module."""
    module = sys.modules["tiny_als"] = ModuleType("tiny_als")
    exec(compile(CODE, "new_model.md", "exec"), vars(module))
    return module


TOY: Any = import_toy_model()


@pytest.fixture
def registered() -> Iterator[str]:
    (name, summary) = re.findall(
        r'^"(.*?)": Registration\("TinyALS", "(.*?)"\),$', PAGE, re.MULTILINE
    )[0]
    MODELS[name] = Registration("TinyALS", summary)
    yield name
    del MODELS[name]


class TestTinyALS(ModelContract):
    model = TOY.TinyALS
    settings: ClassVar[dict[str, Any]] = {"epochs": 100, "latent_size": 3}
    permutation_error = 0.3  # it starts from random factors
    copy_error = 1e-2  # a fixed number of sweeps does not quite converge

    def test_it_is_fitted_by_its_name(self, registered: str) -> None:
        guest = (
            model_class(registered)(**self.settings)
            .fit(additive())
            .fold_in(["column 7", "column 2"], [5, 1])
        )
        assert guest.predict(["column 7"])[0] > guest.predict(["column 2"])[0]


def test_a_class_of_ones_own_is_loaded_without_being_registered(tmp_path: Path) -> None:
    assert "TinyALS" not in {each.class_name for each in MODELS.values()}
    matrix = additive()
    model = TOY.TinyALS(epochs=2, latent_size=2).fit(matrix)
    model.save(tmp_path / "own.safetensors")
    rows, columns, _ = matrix.entries()
    loaded = load(tmp_path / "own.safetensors")
    assert type(loaded) is TOY.TinyALS
    np.testing.assert_array_equal(loaded.predict(rows, columns), model.predict(rows, columns))


@pytest.mark.parametrize("axis", ["row", "column"])
def test_factors_of_another_shape_are_refused_by_name(axis: str) -> None:
    class Flat(TOY.TinyALS):  # type: ignore[misc]
        pass

    setattr(Flat, f"solve_{axis}s", lambda self, entries, others: np.zeros(len(others)))
    with pytest.raises(ValueError, match=f"solve_{axis}s must return an array of the shape"):
        Flat(epochs=2, latent_size=2).fit(additive())


def test_rows_are_the_ridge_regressions_on_the_columns() -> None:
    matrix = additive(8, 6)
    model = TOY.TinyALS(epochs=3, latent_size=2, penalty=0.5).fit(matrix)
    columns, mean = model.column_latents_.astype(np.float64), matrix.mean
    for row, label in enumerate(model.row_labels_):
        at = slice(*matrix.by_row.starts[row : row + 2])
        known, values = columns[matrix.by_row.columns[at]], matrix.values[at] - mean
        factors = np.linalg.solve(known.T @ known + 0.5 * np.eye(2), known.T @ values)
        expected = np.clip(mean + columns @ factors, 1, 5)
        np.testing.assert_allclose(
            model.predict([label] * 6, model.column_labels_), expected, rtol=1e-4
        )


def test_the_model_of_the_page_is_short() -> None:
    assert len(CODE.splitlines()) <= 50
    names = re.search(r"from deepmf.models import (.*)", CODE)
    assert names is not None and len(names[1].split(", ")) <= 5 and CODE.count("deepmf") == 1
