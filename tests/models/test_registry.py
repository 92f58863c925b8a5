"""The registry: every model by its name."""

import inspect
import pydoc
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch

import deepmf
from deepmf.data import split_areas
from deepmf.datasets import generate
from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.matrix import AREAS
from deepmf.models.loading import load
from deepmf.models.registry import MODELS, find_class, model_class
from deepmf.training.settings import list_settings


@pytest.mark.parametrize("name", MODELS)
def test_every_name_is_a_model_with_settings_that_work(name: str) -> None:
    found = model_class(name)
    assert found.__name__ == MODELS[name].class_name
    assert find_class(found.__name__) is found
    assert found().settings.to_dict()["seed"] == 0
    assert found.predicts[0] == "I" and set(found.predicts) <= set(AREAS)
    assert bool(found.cannot) == (found.predicts != AREAS)
    assert ">>>" in (found.__doc__ or "")


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(BadSetting, match="'dmf'"):
        model_class("DFM")
    assert find_class("Nothing") is None


def test_a_class_of_ones_own_has_to_be_imported_before_its_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_class("means")().fit(generate(20, 10, density=0.5, seed=0).matrix)
    model.save(tmp_path / "model.safetensors")
    monkeypatch.setattr("deepmf.models.loading.find_class", lambda name: None)
    with pytest.raises(BadModelFile, match="'Means'.*import the module") as caught:
        load(tmp_path / "model.safetensors")
    assert caught.value.hint is not None and "python -c" in caught.value.hint.command


def test_classes_that_are_no_whole_models_are_not_found() -> None:
    model_class("i-autorec")
    assert [
        find_class(name) for name in ("AutoRec", "FactorModel", "SimpleModel", "ALSSettings")
    ] == [None] * 4


def test_every_model_and_its_settings_are_public() -> None:
    classes = [model_class(name) for name in MODELS]
    assert {each.__name__ for each in classes} | {
        each.settings_class.__name__ for each in classes
    } <= {*deepmf.__all__}
    assert deepmf.ALS is model_class("als")


@pytest.mark.parametrize("name", MODELS)
def test_every_setting_is_described_in_one_line(name: str) -> None:
    documented = model_class(name).settings_class.__doc__ or ""
    for setting in list_settings(model_class(name).settings_class):
        assert setting.description[0].isupper() and setting.description.endswith(".")
        assert "\n" not in setting.description
        assert f"\n{setting.name} : {setting.type}" in documented


@pytest.mark.parametrize("name", MODELS)
def test_the_signature_of_a_model_lists_its_settings(name: str) -> None:
    model, settings = model_class(name), model_class(name).settings_class
    shown = {
        each.name: (each.default, each.annotation)
        for each in inspect.signature(model).parameters.values()
    }
    assert shown == {each.name: (each.default, each.annotation) for each in list_settings(settings)}
    # on one line or several
    documented = pydoc.render_doc(model, renderer=pydoc.plaintext).replace("|", " ").split()
    assert f"{model.__name__}( *, seed: int = 0" in " ".join(documented).replace("(*", "( *")


def numbers_of(name: str) -> list[str]:
    """The settings of a model that are numbers, or may be."""
    hints = get_type_hints(model_class(name).settings_class)
    return [setting for setting, hint in hints.items() if {int, float} & {hint, *get_args(hint)}]


@pytest.mark.parametrize("name", MODELS)
def test_no_number_is_too_large_to_be_refused(name: str) -> None:
    for setting in numbers_of(name):
        for bad in (10**400, *([] if setting in ("seed", "decay_every") else [1e300])):
            with pytest.raises(BadSetting, match=f"^{setting}"):
                model_class(name)(**{setting: bad})
    assert "seed" in numbers_of(name)


QUICK = {
    "epochs": 2,
    "validate_every": 1,
    "hidden_sizes": (8,),
    "hidden_size": 8,
    "latent_size": 4,
    "device": "cpu",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_default_dtype_of_the_caller_changes_nothing(name: str, tmp_path: Path) -> None:
    split = split_areas(generate(40, 30, density=0.4, seed=0).matrix, seed=0)
    known = get_type_hints(model_class(name).settings_class)
    settings = {setting: value for setting, value in QUICK.items() if setting in known}

    def completed() -> Any:
        model_class(name)(**settings).fit(split.train, split.validation).save(tmp_path / "m")
        model = load(tmp_path / "m")
        return (model.extend(split.extension) if "IV" in model.predicts else model).complete()

    expected = completed()
    torch.set_default_dtype(torch.float64)
    try:
        assert np.array_equal(completed(), expected)
    finally:
        torch.set_default_dtype(torch.float32)
