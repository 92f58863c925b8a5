"""OrdinalDMF: the contract, its distributions, levels and intervals, and scales without levels."""

from typing import Any, ClassVar

import numpy as np
import pytest
from tests.models.contract import ModelContract, additive

from deepmf.data.splits import split_entries
from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.means import Means
from deepmf.models.ordinal_dmf import OrdinalDMF

QUICK: dict[str, Any] = {
    "hidden_sizes": (64,),
    "latent_size": 16,
    "dropout": 0.0,
    "epochs": 150,
    "learning_rate": 1e-2,
    "hiding": 0.3,
    "views": 8,
    "device": "cpu",
}


class TestOrdinalDMF(ModelContract):
    model = OrdinalDMF
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.6
    permutation_error = 0.6

    def ordinal(self, **changes: Any) -> OrdinalDMF:
        model = self.new(**changes)
        assert isinstance(model, OrdinalDMF)
        return model
