"""`deepmf fit`: the same model as by the library, settings from everywhere, one line for what is
wrong."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf.data import AreaSplit, read_matrix, split_entries
from deepmf.errors import TrainingDiverged
from deepmf.models.dmf import DMF
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.training import progress
from deepmf.training.history import describe_stages
from deepmf.training.trainer import Trainer

ONE_EPOCH = ["--set", "epochs=1", "--device", "cpu"]


def summary_of(run: Any, *arguments: object) -> dict[str, Any]:
    summary: dict[str, Any] = run.json("fit", *arguments)
    return summary


@pytest.mark.slow
def test_it_is_the_model_of_the_library(
    run: Any, folder: Path, tmp_path: Path, tiny: list[str]
) -> None:
    output = tmp_path / "model.safetensors"
    summary = summary_of(
        run, folder / "train.csv", "-o", output, *tiny, "--set", "epochs=7", "--seed", 3
    )
    entries = read_matrix(folder / "train.csv")
    parts = split_entries(entries, train=0.95, validation=0.05, test=0, seed=3)
    model = DMF(
        hidden_sizes=(16,),
        latent_size=4,
        dropout=0.2,
        validate_every=1,
        epochs=7,
        seed=3,
        device="cpu",
    ).fit(parts.train, parts.validation)
    assert np.array_equal(load(output).complete(), model.extend(parts.validation).complete())
    assert summary["model"] == "DMF"
    assert (summary["rows"], summary["columns"]) == parts.train.shape
    assert (summary["entries"], summary["left_out"]) == (entries.n_entries, 0)
    assert summary["validation_entries"] == parts.validation.n_entries
    assert summary["validation_rmse"] == model.history_.best_error
    assert summary["means_rmse"] == model.history_.means_error
    assert summary["best_epoch"] == model.history_.best_epoch + 1
    assert (summary["epochs"], summary["stopped"], summary["file"]) == (7, "epochs", str(output))


def test_the_summary_in_words(run: Any, folder: Path, tmp_path: Path, tiny: list[str]) -> None:
    output = tmp_path / "model.safetensors"
    code, out, err = run("fit", folder / "train.csv", "-o", output, *tiny, "--set", "epochs=2")
    assert (code, err) == (0, "")  # standard error is no terminal: no progress
    plan, first, *_, last = out.splitlines()
    n_train = load(output).entries_.train.n_entries
    assert plan.startswith(f"fitting DMF to {n_train} entries: 2 epochs")
    assert first.startswith("fitted DMF to ")
    assert "best epoch" in first
    history = load(output).history_
    n_entries = round(0.05 * read_matrix(folder / "train.csv").n_entries)
    told = f"validation RMSE {history.best_error:.4f} on {n_entries} entries; the means: {history.means_error:.4f}"
    assert first.endswith(told)
    assert last == f"saved in {output}"


def test_validation_entries_of_a_model_that_cannot_extend_are_told(
    run: Any, folder: Path, tmp_path: Path
) -> None:
    fit = f"fit {folder}/train.csv -o {tmp_path}/m --model optspace --set epochs=2".split()
    code, out, err = run(*fit)
    assert (code, err) == (0, "")
    told = [line for line in out.splitlines() if "are not in the model" in line]
    assert len(told) == 1 and re.match(
        "16 validation entries .*OptSpace .*--validation-share 0", told[0]
    )
    found = summary_of(run, *fit[1:])
    assert (found["entries"], found["left_out"]) == (308, 16)
    none = summary_of(run, *fit[1:], "--validation-share", 0)
    assert (none["entries"], none["left_out"]) == (324, 0)


def test_validation_from_a_file_teaches_nothing(
    run: Any, folder: Path, tmp_path: Path, split: AreaSplit
) -> None:
    summary = summary_of(
        run,
        *(
            f"{folder}/train.csv -o {tmp_path}/m --validation {folder}/known.csv --model means"
        ).split(),
    )
    assert summary["entries"] == split.train.n_entries
    assert summary["validation_entries"] == split.test["I"].n_entries
    summary = summary_of(
        run, folder / "train.csv", "-o", tmp_path / "m", "--validation-share", 0, "--model", "means"
    )
    assert (summary["entries"], summary["validation_entries"]) == (split.train.n_entries, 0)
    assert summary["validation_rmse"] is None


def test_set_wins_over_the_config_and_seed_and_device_over_both(
    run: Any, folder: Path, tmp_path: Path, tiny: list[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('epochs = 3\nlatent_size = 9\nseed = 1\ndevice = "cuda"\n')
    output = tmp_path / "m"
    summary_of(run, folder / "train.csv", "-o", output, "--config", config, *tiny, "--seed", 2)
    settings = load(output).settings
    assert (settings.epochs, settings.latent_size, settings.seed, settings.device) == (
        3,
        4,
        2,
        "cpu",
    )


@pytest.mark.slow
def test_what_was_chosen_and_what_followed_is_told(run: Any, folder: Path, tmp_path: Path) -> None:
    fit = f"fit {folder}/train.csv -o {tmp_path}/m --effort quick --validation-share 0.05".split()
    fit += ONE_EPOCH
    code, out, err = run(*fit)
    assert (code, err) == (0, "")
    plan, summary, stages, chosen, _ = out.splitlines()
    model = load(tmp_path / "m")
    said = "fitting OrdinalDMF .*quick.* to 308 entries: the sampler alone, .* on the CPU; about .*(second|minute)"
    assert re.match(said, plan)
    assert stages == f"stages: {describe_stages(model.history_.stages)}"
    assert (
        f"validation RMSE {list(model.history_.stages.values())[-1]:.4f} on 16 entries" in summary
    )
    assert "hidden_sizes=16, latent_size=16 dropout=" in chosen
    assert re.search(r"\d more", chosen)
    found = summary_of(run, *fit[1:])
    assert found["stages"] == model.history_.stages
    assert found["chosen"].keys() == model.chosen_.keys() and "epochs" not in found["chosen"]


def test_a_terminal_is_told_the_plan_once(
    run: Any, folder: Path, tmp_path: Path, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    code, out, err = run(
        "fit", folder / "train.csv", "-o", tmp_path / "m", *tiny, "--set", "epochs=2"
    )
    assert code == 0
    assert "fitting DMF to" not in out
    assert err.startswith("fitting DMF to 308 entries: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "dropuot=0.5"], "'dropuot'; did you mean 'dropout'"),
        (["--model", "dmfd"], "'dmfd'; did you mean 'dmf"),
        (["--config", "nowhere.toml"], "there is no file nowhere.toml"),
        (["--scale", "1,2,3"], "the scale is 1 to 3 in steps of 1"),
        (["--validation-share", "2"], "must be shares between 0 and 1"),
        (["--validation-share", "0.1", "--validation", "v.csv"], "--validation-share"),
        (["--seed", "-1"], "0 or more; got -1"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    run: Any, folder: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    assert message in run.fails("fit", folder / "train.csv", "-o", tmp_path / "m", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_diverges_later_keeps_the_last_good_weights(
    run: Any, folder: Path, tmp_path: Path, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = DMF.fit

    def fit(model: DMF, *arguments: Any, **named: Any) -> None:
        learn(model, *arguments, **named)
        raise TrainingDiverged("no longer a number")

    monkeypatch.setattr(DMF, "fit", fit)
    output = tmp_path / "m"
    code, out, err = run("fit", folder / "train.csv", "-o", output, *tiny, "--set", "epochs=2")
    assert code == 2 and re.search(f"number; .*{output}\n", err)
    assert out.startswith("fitting DMF to ") and out.count("\n") == 1
    assert len(load(output).history_) == 2


def test_the_checkpoint_goes_only_when_the_model_is_there(
    run: Any, folder: Path, tmp_path: Path, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    fit = [
        *f"fit {folder}/train.csv -o {tmp_path}/m".split(),
        *tiny,
        *"--set epochs=3 --resume".split(),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(DMF, "save", killed)
        assert run(*fit).code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["m.checkpoint"]
    monkeypatch.setattr(Trainer, "run_epoch", lambda *_: pytest.fail("it trained again"))
    assert run(*fit).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert len(load(tmp_path / "m").history_) == 3


def test_asked_cells_calibrate_the_saved_model(
    run: Any, folder: Path, tmp_path: Path, split: AreaSplit
) -> None:
    fit = folder / "train.csv", "-o", tmp_path / "m", "--validation-share", 0, "--model", "means"
    summary = summary_of(run, *fit, "--asked", folder / "known.csv")
    train = read_matrix(folder / "train.csv", scale=split.train.scale)
    expected = Means().fit(train, asked=read_matrix(folder / "known.csv", scale=split.train.scale))
    assert summary["asked"] == load(tmp_path / "m").asked_ == pytest.approx(expected.asked_)
    assert "asked cells" in run("fit", *fit, "--asked", folder / "known.csv")[1]
