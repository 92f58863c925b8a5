"""Model files of commands: a terminal gets none."""

import sys
from pathlib import Path

import pytest

from deepmf.cli.model_file import check_model_target
from deepmf.errors import BadSetting


def test_a_terminal_gets_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    check_model_target(Path("-"), inputs=())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with pytest.raises(BadSetting, match="terminal"):
        check_model_target(Path("-"), inputs=())
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(BadSetting, match="terminal"):
        check_model_target(Path("-"), inputs=())
