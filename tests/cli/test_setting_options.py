"""Settings from the command line: literals, words, TOML, scales."""

from pathlib import Path

import pytest

from deepmf.cli.setting_options import gather_settings, parse_assignment, parse_scale, parse_value, read_config
from deepmf.errors import BadSetting, FileAbsent, UnreadableFile
from deepmf.matrix.scale import Scale


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
    with pytest.raises(BadSetting, match="--set takes name=value"):
        parse_assignment(text)


def test_a_value_may_hold_an_equals_sign() -> None:
    assert parse_assignment("inputs=a=b") == ("inputs", "a=b")


@pytest.mark.parametrize("head", ["", "[settings]\n"])
def test_config_and_what_wins_over_it(tmp_path: Path, head: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"{head}dropout = 0.5\nhidden_sizes = [64, 32]\n")
    assert gather_settings(path, ["dropout=0.1"]) == {"dropout": 0.1, "hidden_sizes": [64, 32]}
    assert gather_settings(None, None, seed=None) == {}
    assert gather_settings(None, ["seed=1", "dropout=0.1"], seed=2, device=None) == {"seed": 2, "dropout": 0.1}


def test_bad_configs(tmp_path: Path) -> None:
    with pytest.raises(FileAbsent):
        read_config(tmp_path / "none.toml")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        read_config(tmp_path)
    path = tmp_path / "config.toml"
    path.write_text("dropout: 0.5")
    with pytest.raises(UnreadableFile, match="not a TOML file"):
        read_config(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UnreadableFile, match="not a TOML file"):
        read_config(path)
    path.write_text("settings = 3")
    with pytest.raises(UnreadableFile, match="must be a table"):
        read_config(path)


def test_scales() -> None:
    assert parse_scale(None) is None
    assert parse_scale("1,2.5,5") == Scale(levels=[1, 2.5, 5])
    assert parse_scale("-1:1") == Scale(low=-1, high=1)
    for text in ("", "stars", "1;2", "1:2:3"):
        with pytest.raises(BadSetting, match="--scale takes levels"):
            parse_scale(text)
    with pytest.raises(BadSetting, match="must increase"):
        parse_scale("5,1")
