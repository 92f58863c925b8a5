"""The model of CONTRIBUTING.md: its code as it stands there passes the contract of all models."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.models.contract import ModelContract, additive

from deepmf import load
from deepmf.models.registry import MODELS, Registration, model_class

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Add a model") :]


def import_toy_model() -> ModuleType:
    """Import the Python block of the section as a module."""
    (code,) = re.findall(r"^```python\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    module = sys.modules["tiny_als"] = ModuleType("tiny_als")
    exec(compile(code, "CONTRIBUTING.md", "exec"), vars(module))
    return module


TOY: Any = import_toy_model()


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    (name, summary) = re.findall(r'^"(.*?)": Registration\(".*?", "TinyALS", "(.*?)"\),$', SECTION, re.MULTILINE)[0]
    MODELS[name] = Registration("tiny_als", "TinyALS", summary)
    yield
    del MODELS[name]


class TestTinyALS(ModelContract):
    model = TOY.TinyALS
    settings: ClassVar[dict[str, Any]] = {"epochs": 100}
    permutation_error = 0.3  # it starts from random factors
    copy_error = 1e-2  # a fixed number of sweeps does not quite converge

    def test_it_fits_predicts_extends_saves_and_loads_by_its_name(self, tmp_path: Path) -> None:
        matrix = additive()
        model = model_class("tiny-als")(**self.settings).fit(matrix)
        guest = model.fold_in(["column 7", "column 2"], [5, 1])
        assert guest.predict(["column 7"])[0] > guest.predict(["column 2"])[0]
        model.save(tmp_path / "toy.safetensors")
        rows, columns, _ = matrix.entries()
        np.testing.assert_array_equal(
            load(tmp_path / "toy.safetensors").predict(rows, columns), model.predict(rows, columns)
        )


def test_the_file_is_short() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    assert len(code.splitlines()) < 150
