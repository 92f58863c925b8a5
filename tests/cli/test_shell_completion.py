"""What Tab offers is what there is, and nothing heavy is loaded for it."""

import os
import subprocess
import sys
from dataclasses import fields

import pytest

from deepmf.cli.shell_completion import dataset_names, setting_names, table_names
from deepmf.data.datasets import local as datasets
from deepmf.experiments.recipe import tables
from deepmf.models.registry import HOMES, model_class


@pytest.mark.parametrize("model", HOMES)
def test_settings(model: str) -> None:
    assert setting_names(model) == [field.name for field in fields(model_class(model).settings_class)]


def test_data_sets_tables_and_what_does_not_exist() -> None:
    assert dataset_names() == datasets.names()
    assert table_names() == tables()
    assert setting_names("svd++") == []


# Runs the command line with what the shell sets after Tab, and puts out what was loaded too.
TAB = (
    "import sys\nfrom deepmf.cli.app import main\n"
    "try:\n    main()\nexcept SystemExit:\n"
    "    print(*sorted({'torch', 'numpy', 'scipy', 'polars'} & set(sys.modules)), file=sys.stderr)"
)


@pytest.mark.parametrize(
    ("line", "offered", "loaded"),
    [
        ("deepmf in", ["inspect"], ""),
        ("deepmf fit r.csv --model dm", [name for name in HOMES if name.startswith("dm")], ""),
        ("deepmf fit r.csv --model means --set sh", ["shrinkage="], ""),
        ("deepmf fit r.csv --set latent", ["latent_size="], ""),
        ("deepmf tune r.csv --model dmf-o --set mask", ["mask_rate="], ""),
        ("deepmf settings od", ["odmc"], ""),
        ("deepmf datasets fetch ml-2", ["ml-20m", "ml-25m"], "numpy scipy"),
        ("deepmf reproduce tab", ["table1", "table2"], ""),
    ],
)
def test_tab(line: str, offered: list[str], loaded: str) -> None:
    words = {"_DEEPMF_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    ended = subprocess.run([sys.executable, "-c", TAB], capture_output=True, text=True, env=os.environ | words)
    assert (ended.stdout.split(), ended.stderr) == (offered, f"{loaded}\n")
