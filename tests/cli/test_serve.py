"""`deepmf serve` and `api-key`: what they refuse, and what they write."""

import logging
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from deepmf import load
from deepmf.cli.serve import write_demo_model
from deepmf.data.synthetic import generate
from deepmf.serve.auth import read_keys


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give a model file"),
        (["{model}", "--demo"], "not both"),
        (["nowhere.safetensors"], "nowhere.safetensors"),
        (["{model}", "--host", "0.0.0.0"], "--keys"),
        (["{model}", "--workers", "0"], "--workers"),
        (["{model}", "--keys", "nowhere.txt"], "key file"),
        (["{model}", "--database", "mysql://x/y"], "neither SQLite nor PostgreSQL"),
        (["{model}", "--port", "99999"], "99999"),
        (["{model}", "--log-level", "loud"], "--log-level"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_line(
    run: Run, folder: Path, options: list[str], said: str
) -> None:
    given = [option.replace("{model}", str(folder / "means.safetensors")) for option in options]
    outcome = run("serve", "--port", 0, *given) if "--port" not in given else run("serve", *given)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_service_that_ended_leaves_no_log_behind(run: Run, folder: Path) -> None:
    assert (
        run("serve", folder / "means.safetensors", "--database", "mysql://x/y", "--port", 0).code
        == 2
    )
    assert not [name for name in ("deepmf.serve", "uvicorn") if logging.getLogger(name).handlers]


def test_a_key_is_shown_once(run: Run, tmp_path: Path) -> None:
    outcome = run("api-key", tmp_path / "keys.txt", "--name", "phone", "--role", "write")
    key = read_keys(tmp_path / "keys.txt").find(outcome.out.splitlines()[0])
    assert key is not None
    assert (key.name, key.role) == ("phone", "write")
    assert run("api-key", tmp_path / "keys.txt", "--name", "phone").code == 2


@pytest.mark.slow
def test_the_demo_knows_all_films_that_were_rated(tmp_path: Path) -> None:
    small = {"hidden_sizes": (8,), "latent_size": 4, "epochs": 1, "linear_iterations": 4}
    write_demo_model(tmp_path / "m", seed=3, n_rows=60, n_columns=40, **small)
    ratings = generate(60, 40, density=0.12, noise=0.7, seed=3).matrix
    assert load(tmp_path / "m").entries_.n_entries == ratings.n_entries
