"""The settings of DMF and DMF-D."""

from deepmf.matrix.encoding import ENCODINGS
from deepmf.models.dmf.dmf_settings import DMFDSettings, DMFSettings
from deepmf.training.declarations import declared, rule_of


def test_inputs_are_the_encodings_there_are() -> None:
    assert rule_of(DMFSettings, "inputs").to_dict() == {"choices": list(ENCODINGS)}


def test_dmf_d_adds_the_quantizer() -> None:
    added = {setting.name for setting in declared(DMFDSettings)} - {setting.name for setting in declared(DMFSettings)}
    assert added == {"sharpness", "sharpness_growth", "gamma_boundaries"}
