"""`python -m deepmf.experiments`: the bare command that a GPU machine runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deepmf.experiments.__main__ import main


@pytest.mark.slow
def test_run_then_show(recipes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["run", "small", "--only", "means", "--splits", "1", "--out", out]) == 0
    shown, said = capsys.readouterr()
    assert "1/2 small/means, seed 0, 20% new: I 0." in said and "min left" in said
    assert (
        shown.startswith("| method | new | area I |")
        and "| row | protocol | fits | seconds each |" in shown
    )
    assert main(["show", "small", "--out", out]) == 0
    assert capsys.readouterr().out == shown


def test_bad_input_is_one_line(
    recipes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "smal", "--out", str(tmp_path)]) == 2
    assert re.search("'smal'; .*'small'", capsys.readouterr().err)


@pytest.mark.slow
def test_it_needs_nothing_but_the_numeric_core(tmp_path: Path) -> None:
    """As on a machine that has torch, numpy, scipy and safetensors alone."""
    blocked = "polars narwhals typer rich jinja2 pandas pyarrow sklearn".split()
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); "
        "from deepmf.experiments.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, "show", "table1", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"DEEPMF_COMMIT": "abc"},
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("| method |")
