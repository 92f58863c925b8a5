"""Settings from the command line: literals, words, TOML, scales."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from deepmf.cli.settings import (
    TrainingOptions,
    format_value,
    parse_assignment,
    parse_scale,
    parse_value,
)
from deepmf.errors import BadSetting
from deepmf.matrix.scale import Scale
from deepmf.models.ordinal.settings import Facts, choose_settings
from deepmf.models.registry import MODELS, model_class
from deepmf.training.settings import list_settings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("512,256", (512, 256)),
        ("512,", (512,)),
        ("[512, 256]", [512, 256]),
        ("(512,)", (512,)),
        (".5", 0.5),
        ("1e-3", 1e-3),
        ("100", 100),
        ("None", None),
        ("none", None),
        ("null", None),
        ("true", True),
        ("raw", "raw"),
        ("'raw'", "raw"),
        ("1.2.3", "1.2.3"),
        ("[1, 2", "[1, 2"),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@pytest.mark.parametrize("text", ["dropout", "=3", "dropout=", ""])
def test_not_an_assignment(text: str) -> None:
    with pytest.raises(BadSetting, match="--set"):
        parse_assignment(text)


def test_config_and_what_wins_over_it(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("dropout = 0.5\nhidden_sizes = [64, 32]\n")
    given = TrainingOptions(config=path, assignments=["dropout=0.1", "seed=1"], seed=2)
    assert given.settings == {"dropout": 0.1, "hidden_sizes": [64, 32], "seed": 2}
    assert TrainingOptions().settings == {}


def test_scales() -> None:
    assert parse_scale(None) is None
    assert parse_scale("1,2.5,5") == Scale(levels=[1, 2.5, 5])
    assert parse_scale("-1:1") == Scale(low=-1, high=1)
    for text in ("", "stars", "1;2", "1:2:3"):
        with pytest.raises(BadSetting, match="--scale"):
            parse_scale(text)
    with pytest.raises(BadSetting, match="increase"):
        parse_scale("5,1")


@pytest.mark.parametrize("model", ["als", "dmf-o"])
def test_a_table_of_all_settings(run: Any, model: str) -> None:
    code, out, err = run("settings", model)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"{MODELS[model].class_name}: {MODELS[model].summary}"
    lines = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in out.splitlines()
        if line.startswith("│")
    ]
    shown = {line[0]: line[1:] for line in lines if line[0]}
    assert list(shown) == [
        setting.name for setting in list_settings(model_class(model).settings_class)
    ]
    for setting in list_settings(model_class(model).settings_class):
        default, values, meaning = shown[setting.name]
        assert default == ("chosen" if setting.is_chosen_at_fit else format_value(setting.default))
        assert values and setting.values.startswith(values)  # a long one goes on in the next line
        assert meaning and setting.description.startswith(meaning)


def test_the_line_below_the_table_is_a_command_that_parses(run: Any) -> None:
    last = run("settings", "als").out.splitlines()[-1]
    assert re.search("deepmf fit .* --model als --set feature_penalty=10.0$", last)


def test_what_is_chosen_at_fit_is_marked(run: Any) -> None:
    found = run.json("settings", "dmf-o")["settings"]
    marked = {each["name"] for each in found if each["chosen_at_fit"]}
    assert marked == choose_settings(Facts(60, 40, 300, on_gpu=True), "best").keys() | {
        "presence",
        "rank_by",
    }
    assert "chosen: fit chooses" in run("settings", "dmf-o").out
    assert "chosen" not in run("settings", "rankk").out


def test_without_a_model_the_models(run: Any) -> None:
    code, out, _ = run("settings")
    assert code == 0
    assert all(f"│ {name} " in out and each.summary in out for name, each in MODELS.items())
    found = run.json("settings")["models"]
    assert [(each["name"], each["class"]) for each in found] == [
        (name, each.class_name) for name, each in MODELS.items()
    ]
