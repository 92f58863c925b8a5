"""Models and test entries for reports: a model that gives distributions, one that predicts
levels."""

import re
from collections.abc import Iterable
from html import unescape
from typing import Any

import numpy as np
import pytest

from deepmf.data import AreaSplit, split_areas
from deepmf.datasets import generate
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.dmfd import DMFD
from deepmf.models.means import Means
from deepmf.report.content import LeftOut, Section, render_template

TINY: dict[str, Any] = {
    "hidden_sizes": (16,),
    "latent_size": 4,
    "dropout": 0.2,
    "epochs": 6,
    "validate_every": 1,
    "device": "cpu",
}


class Bell(Model):
    """A bell around what is predicted: a stand-in for a model that gives distributions."""

    gives_distribution = True

    def predict_distribution(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        levels = self.scale_.levels
        assert levels is not None
        bell = np.exp(-0.5 * np.square(levels - self.predict(rows, columns)[:, None]))
        distribution: FloatArray = bell / bell.sum(axis=1, keepdims=True)
        return distribution

    def predict_interval(
        self, rows: Iterable[Any], columns: Iterable[Any], *, coverage: float = 0.9
    ) -> tuple[FloatArray, FloatArray]:
        middle, half = self.predict(rows, columns), 2 * coverage
        return middle - half, middle + half


class Probable(Bell, Means):
    """The means, with distributions."""


class ProbableDMFD(Bell, DMFD):
    """DMF-D, with distributions: it has every section."""


def html_of(section: Section | LeftOut) -> str:
    """Return a section as HTML."""
    assert isinstance(section, Section)
    return render_template("section.html", section=section)


def lines_of(written: str, caption: str) -> list[list[str]]:
    """Return the cells of a table as text, its head first."""
    table = re.search(rf"<caption>{re.escape(caption)}</caption>(.*?)</table>", written, re.DOTALL)
    assert table is not None, f"there is no table {caption!r}"
    lines = re.findall("<tr>(.*?)</tr>", table[1])
    return [
        [unescape(re.sub("<[^>]+>", "", cell)) for cell in re.split("</t[hd]>", line)[:-1]]
        for line in lines
    ]


def joined(*parts: ObservedMatrix) -> ObservedMatrix:
    rows, columns, values = (
        np.concatenate(arrays) for arrays in zip(*(p.entries() for p in parts), strict=True)
    )
    return ObservedMatrix.from_entries(rows, columns, values, parts[0].scale)


def relabelled(matrix: ObservedMatrix, names: dict[int, str]) -> ObservedMatrix:
    """Return the matrix with other names for the columns at some positions."""
    labels = np.array(
        [names.get(at, label) for at, label in enumerate(matrix.column_labels.tolist())],
        dtype=object,
    )
    rows, _, values = matrix.entries()
    return ObservedMatrix.from_entries(
        rows,
        labels[matrix.by_row.columns],
        values,
        matrix.scale,
        row_labels=matrix.row_labels,
        column_labels=labels,
    )


@pytest.fixture(scope="session")
def split() -> AreaSplit:
    return split_areas(
        generate(120, 30, density=0.6, seed=0).matrix, new_rows=0.3, new_columns=0.3, seed=0
    )


@pytest.fixture(scope="session")
def entries(split: AreaSplit) -> ObservedMatrix:
    return joined(*split.test.values())


@pytest.fixture(scope="session")
def discrete(split: AreaSplit) -> Model:
    """DMF-D, extended to all four areas."""
    return DMFD(**TINY).fit(split.train, split.validation).extend(split.extension)


@pytest.fixture(scope="session")
def probable(split: AreaSplit) -> Model:
    return Probable().fit(split.train).extend(split.extension)
