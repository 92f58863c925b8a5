"""The settings of OrdinalDMF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf.datasets import generate
from deepmf.models.bayesian import choose_settings as choose_sampler_settings
from deepmf.models.loading import load
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.ordinal.settings import Facts, OrdinalDMFSettings, choose_settings
from deepmf.testing import additive
from deepmf.training.history import EpochRecord, History
from deepmf.training.settings import EFFORTS

SHAPES = [
    (30, 25),
    (1, 40),
    (40, 1),
    (2, 100_000),
    (943, 1682),
    (6040, 3706),
    (22_000, 296_000),
    (10**6, 10**6),
]

# Everything that makes a fit of some seconds, and nothing that the tests below look at.
TINY: dict[str, Any] = {"hidden_sizes": (8,), "epochs": 2, "linear_size": 0, "device": "cpu"}


every_machine = pytest.mark.parametrize("on_gpu", [False, True], ids=["CPU", "GPU"])

every_effort = pytest.mark.parametrize("effort", EFFORTS)


def counts_of(shape: tuple[int, int]) -> list[int]:
    """From a single entry to a full matrix, or to 10^9 entries."""
    most = min(shape[0] * shape[1], 10**9)
    return sorted({int(count) for count in np.geomspace(1, most, 25)})


def list_facts(on_gpu: bool) -> list[Facts]:
    return [Facts(*shape, count, on_gpu) for shape in SHAPES for count in counts_of(shape)]


@every_machine
@every_effort
def test_every_choice_is_a_legal_one(effort: str, on_gpu: bool) -> None:
    for facts in list_facts(on_gpu):
        chosen, shape = choose_settings(facts, effort), (facts.n_rows, facts.n_columns)
        OrdinalDMFSettings(**chosen)  # refuses what is not legal
        assert 2 <= chosen["block_rows"] <= max(2, shape[0])
        assert 2 <= chosen["block_columns"] <= max(2, shape[1])
        assert (
            1 <= chosen["validate_every"] <= chosen["epochs"]
            and chosen["patience"] <= chosen["epochs"]
        )


@every_machine
@every_effort
def test_more_entries_never_take_more_dropout_views_landmarks_or_samples(
    effort: str, on_gpu: bool
) -> None:
    for shape in SHAPES:
        chosen = [
            choose_settings(Facts(*shape, count, on_gpu), effort) for count in counts_of(shape)
        ]
        for name in ("dropout", "views", "landmarks", "linear_samples"):
            values = [each[name] for each in chosen]
            assert values == sorted(values, reverse=True), (name, shape)
        assert all(
            0.0 <= each["dropout"] <= 0.6 and (each["views"] >= 4 or not each["networks"])
            for each in chosen
        )


@every_machine
@every_effort
def test_chains_are_longer_for_few_entries_and_shorter_for_many(effort: str, on_gpu: bool) -> None:
    few, usual, many, large = (
        choose_settings(Facts(6040, 3706, count, on_gpu), effort)
        for count in (100_000, 700_000, 2_000_000, 4_000_000)
    )
    lengths = [each["linear_iterations"] for each in (few, usual, many)]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] <= max(400, lengths[1])
    # for the memory of many rows and columns
    assert large["landmarks"] <= 512 and large["linear_samples"] <= 20


@every_machine
@every_effort
def test_no_block_is_a_small_rest(effort: str, on_gpu: bool) -> None:
    for facts in list_facts(on_gpu):
        chosen = choose_settings(facts, effort)
        for n, block in zip(
            (facts.n_rows, facts.n_columns),
            (chosen["block_rows"], chosen["block_columns"]),
            strict=True,
        ):
            rest = n % block
            assert rest == 0 or rest >= 0.7 * block or n < 2 * block


@every_machine
@every_effort
@pytest.mark.parametrize("shape", [(22_000, 296_000), (296_000, 22_000), (10**6, 10**6)], ids=str)
def test_first_layers_fit_into_memory(shape: tuple[int, int], effort: str, on_gpu: bool) -> None:
    chosen = choose_settings(Facts(*shape, 10**7, on_gpu), effort)
    (width,) = chosen["hidden_sizes"]
    # A weight for the value and one for its being there, of each row and column; itself, its
    # gradient, Adam's averages.
    n_bytes = 2 * sum(shape) * max(1, chosen["networks"]) * width * 4 * 4
    assert n_bytes <= (2 << 30 if on_gpu else 512 << 20) or width == 16
    assert n_bytes <= 2 << 30


@every_machine
def test_more_effort_is_never_less_of_anything(on_gpu: bool) -> None:
    for shape in SHAPES[3:]:
        for count in counts_of(shape)[12:]:
            quick, normal, best = (
                choose_settings(Facts(*shape, count, on_gpu), effort) for effort in EFFORTS
            )
            for less, more in ((quick, normal), (normal, best)):
                for name in ("networks", "hidden_sizes", "latent_size", "views", "landmarks"):
                    assert less[name] <= more[name], name
    chosen = [choose_settings(Facts(943, 1682, 90_000, on_gpu), effort) for effort in EFFORTS]
    spent = [each["networks"] * each["hidden_sizes"][0] * each["epochs"] for each in chosen]
    assert spent == sorted(set(spent))  # and here it is more


@pytest.mark.parametrize(
    ("n_entries", "expected"), [(10_000, 0.6), (76_000, 0.6), (700_000, 0.4), (10**7, 0.18)]
)
def test_dropout_follows_a_power_of_the_entries(n_entries: int, expected: float) -> None:
    facts = Facts(70_000, 10_000, n_entries, on_gpu=True)
    assert choose_settings(facts, "normal")["dropout"] == expected


def test_networks_are_fewer_before_they_are_narrower() -> None:
    chosen = [
        choose_settings(Facts(n, n, 10**6, on_gpu=True), "normal")
        for n in (5_000, 20_000, 60_000, 200_000)
    ]
    assert [each["networks"] for each in chosen] == [4, 3, 1, 1]
    assert [each["hidden_sizes"] for each in chosen] == [(512,), (559,), (559,), (167,)]


@pytest.mark.slow
def test_what_is_given_is_never_overridden() -> None:
    matrix = additive()
    given = TINY | {
        "latent_size": 5,
        "dropout": 0.0,
        "views": 3,
        "landmarks": 2,
        "block_rows": 7,
        "validate_every": 1,
    }
    model = OrdinalDMF(**given).fit(matrix)
    kept = model.settings.to_dict()
    assert {name: kept[name] for name in given} == given | {"hidden_sizes": kept["hidden_sizes"]}
    assert tuple(kept["hidden_sizes"]) == (8,) and not model.chosen_.keys() & given.keys()
    facts = Facts(*matrix.shape, matrix.n_entries, on_gpu=False)
    suited = choose_settings(facts, "normal", epochs=given.get("epochs"))
    left = {name: value for name, value in suited.items() if name not in given}
    assert {name: model.chosen_[name] for name in left} == left
    # What is given as it is by default is given all the same.
    assert OrdinalDMF(**TINY, views=16).fit(matrix).settings.views == 16


@pytest.mark.slow
def test_a_loaded_model_knows_what_was_chosen_and_chooses_anew(tmp_path: Path) -> None:
    model = OrdinalDMF(**TINY, views=3).fit(additive(12, 10))
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.chosen_ == model.chosen_ and again.settings == model.settings
    assert again.fit(additive(40, 30)).chosen_ == model.fit(additive(40, 30)).chosen_
    assert again.settings == model.settings and again.chosen_["block_rows"] == 40
    for more in (again.extend(additive(41, 30).take(np.array([40]), np.arange(30))), again):
        assert more.chosen_ == model.chosen_


def test_a_fit_that_is_refused_or_breaks_off_leaves_a_fitted_model_as_it_is(tmp_path: Path) -> None:
    small, large = additive(12, 10), additive(40, 30)
    model = OrdinalDMF(**TINY).fit(small)
    before, chosen, predictions = model.settings, model.chosen_, model.complete()

    def breaks(record: EpochRecord, history: History) -> None:
        raise KeyError(record.epoch)

    model.plan(large)
    with pytest.raises(KeyError):
        model.fit(large, callbacks=[breaks])
    assert model.settings == before and model.chosen_ == chosen
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").complete(), predictions)


def test_the_schedule_suits_epochs_that_are_given() -> None:
    facts = Facts(300, 100, 6000, on_gpu=False)
    usual, longer = choose_settings(facts, "normal"), choose_settings(facts, "normal", epochs=900)
    assert longer["epochs"] == 900 and longer["patience"] == 300
    assert (
        longer["validate_every"] > usual["validate_every"]
        and longer["learning_rate"] < usual["learning_rate"]
    )
    assert {name for name in usual if usual[name] != longer[name]} == {
        "epochs",
        "patience",
        "validate_every",
        "learning_rate",
    }


@pytest.mark.parametrize("density", [0.01, 0.1, 0.5])
def test_the_sampler_takes_as_many_iterations_as_in_a_model_of_its_own(density: float) -> None:
    train = generate(600, 400, density=density, seed=0).matrix
    alone = choose_sampler_settings(train, on_gpu=False, effort="normal", epochs=None)
    facts = Facts(*train.shape, train.n_entries, on_gpu=False)
    assert choose_settings(facts, "normal")["linear_iterations"] >= alone["epochs"]
