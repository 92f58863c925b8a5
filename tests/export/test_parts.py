"""The parts of a model: of values as they are, they make its latents and its answers."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from tests.export.conftest import OWN, SMALL, ordinal_support, values_of

from deepmf.data.synthetic.generator import generate
from deepmf.errors import BadSetting, NotBetterThanMeans, NotFitted
from deepmf.export.parts import parts_of
from deepmf.matrix.features import Features
from deepmf.models.dmf.dmf import DMF
from deepmf.models.factorization.als import ALS
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF

REFINED = ["dmf-o, refined", "dmf-o, rows refined", "dmf-o, columns refined"]
LINEAR = ["dmf-o, linear", "dmf-o, linear, interval"]
NAMES = ["dmf", "dmf, interval", "dmf-d", "dmf-o", "dmf-o, interval", *REFINED, *LINEAR]


@pytest.mark.parametrize("name", NAMES)
def test_they_make_what_the_model_makes(models: dict[str, Any], name: str) -> None:
    model = models[name]
    parts = parts_of(model)
    with torch.no_grad():
        rows, columns, *answers = parts(*(torch.from_numpy(values_of(model, axis)) for axis in ("row", "column")))
    assert np.abs(rows.numpy() - model.predictor_.rows.whole()).max() < 1e-5
    assert np.abs(columns.numpy() - model.predictor_.columns.whole()).max() < 1e-5
    wanted = ordinal_support(model)
    assert parts.outputs == tuple(wanted)
    for answer, right in zip(answers, wanted.values(), strict=True):
        assert answer.shape == right.shape
        assert np.abs(answer.numpy() - right).max() < 1e-5


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_part_is_a_part_of_what_is_exported(models: dict[str, Any], name: str) -> None:
    encoder = models[name].predictor_.encoder
    assert encoder.linear_share > 0 and encoder.layout.n_linear == 4 + 3
    with torch.no_grad():  # a row without entries is one, too
        (nothing,) = parts_of(models[name]).rows(torch.full((1, 24), float("nan")))
    linear = nothing[encoder.layout.linear].numpy()
    assert not linear[:-2].any() and linear[-2] > 0 and linear[-1] == 0


def test_what_has_no_parts() -> None:
    with pytest.raises(BadSetting, match="'als' cannot be exported; what can is dmf, dmf-d, dmf-o"):
        parts_of(ALS(epochs=1).fit(generate(10, 10, density=0.5).matrix))
    with pytest.raises(NotFitted):
        parts_of(DMF())


@pytest.mark.parametrize("name", ["dmf", "dmf-o, linear"])
def test_what_is_exported_reads_entries_alone(name: str) -> None:
    matrix = generate(24, 18, density=0.5, seed=0).matrix
    features = {
        "row_features": Features.from_columns(matrix.row_labels, {"n": range(24)}),
        "column_features": Features.from_columns(matrix.column_labels, {"n": range(18)}),
    }
    own = OWN | {"linear_size": 3} if name != "dmf" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotBetterThanMeans)
        model = (OrdinalDMF if own else DMF)(**SMALL | own | {"epochs": 3}).fit(matrix, **features)
    values = torch.from_numpy(values_of(model, "row")[:3])
    histories = [(matrix.column_labels[~line.isnan().numpy()], line[~line.isnan()].tolist()) for line in values]
    with torch.no_grad():
        found = parts_of(model).rows(values).numpy()
    np.testing.assert_allclose(found, model.fold_in_many(histories).predictor.rows.whole(), atol=1e-4)
