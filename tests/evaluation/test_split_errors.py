"""Measuring a model on one split: a fresh one is fitted, with what was given and nothing else."""

from typing import Any

import pytest
from tests.models.contract import additive

from deepmf.data.splits import split_entries
from deepmf.evaluation.compare_models import compare
from deepmf.evaluation.problem import Problem
from deepmf.evaluation.split_errors import measure
from deepmf.models.model import Model
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF


def test_settings_that_were_not_given_are_chosen_for_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[dict[str, Any]] = []
    fit = Model.fit

    def watched(self: Model, *arguments: Any, **options: Any) -> Model:
        fitted = fit(self, *arguments, **options)
        chosen.append(self.chosen_)
        return fitted

    monkeypatch.setattr(Model, "fit", watched)
    split = split_entries(additive(12, 10), seed=0)
    model = OrdinalDMF(hidden_sizes=(8,), epochs=2, linear_size=0, device="cpu")
    measure(model, Problem.of_split(split))
    assert chosen[0].keys() == set(OrdinalDMF.settings_class.chosen_at_fit) - {"hidden_sizes", "epochs"}
    found = compare([model], additive(12, 10), folds=2, own_processes=False).models[0].settings
    assert found["epochs"] == 2 and not found.keys() & chosen[0].keys()
    assert type(model)(**found).own_settings == found
