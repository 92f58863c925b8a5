"""A trial's records: what is measured in which area, and of which models."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deepmf.data.splits import split_entries
from deepmf.data.synthetic.generator import generate
from deepmf.evaluation.area_evaluation import evaluate
from deepmf.evaluation.calibration import calibration
from deepmf.evaluation.cold_start import KNOWN_COUNTS
from deepmf.experiments.protocol import GENERATED, PROTOCOLS
from deepmf.experiments.recipe import Recipe
from deepmf.experiments.trial import Record, Trial, run_choice, run_trial
from deepmf.models.factorization.als import ALS
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF

SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "latent_size": 4,
    "dropout": 0.1,
    "epochs": 3,
    "validate_every": 3,
    "views": 2,
    "device": "cpu",
}
ORDINAL = Recipe(
    name="small/dmf-o", title="OrdinalDMF", model="dmf-o", data=GENERATED, protocol="areas", settings=SMALL
)
MEANS = Recipe(name="small/means", title="means", model="means", data=GENERATED, protocol="areas")


def trial(recipe: Recipe, **changes: Any) -> Trial:
    return Trial(replace(recipe, **changes), seed=0, new_share=0.2)


@pytest.fixture(scope="module", autouse=True)
def commit() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPMF_COMMIT", "abc")
        yield


@pytest.fixture(scope="module")
def ordinal() -> list[Record]:
    return run_trial(trial(ORDINAL))


@pytest.fixture(scope="module")
def means() -> list[Record]:
    return run_trial(trial(MEANS))


def test_new_rows_are_let_in_entry_by_entry(ordinal: list[Record], means: list[Record]) -> None:
    for records in (ordinal, means):
        assert [record["area"] for record in records] == ["I", "II", "III", "IV"]
        assert ["cold_start_curve" in record for record in records] == [False, True, False, False]
        points = records[1]["cold_start_curve"]
        assert [n_known for n_known, _ in points] == list(KNOWN_COUNTS)
        assert all(0 < error < 4 for _, error in points)
    # Means know a row better the more of it they know; with all of it, they are as good as in the record.
    errors = [error for _, error in means[1]["cold_start_curve"]]
    assert errors[0] > errors[-1] >= means[1]["rmse"] - 0.02


@pytest.mark.parametrize("recipe", [MEANS, ORDINAL], ids=lambda recipe: recipe.model)
def test_with_nothing_new_only_area_one_is_measured(recipe: Recipe) -> None:
    nothing_new = Trial(recipe, seed=0, new_share=0.0)
    (record,) = run_trial(nothing_new)
    (chosen,) = run_choice(nothing_new)
    assert (record["area"], record["new_share"], chosen["area"]) == ("I", 0, "I")
    plain = run_trial(Trial(replace(recipe, protocol="entries"), seed=0, new_share=0.0))[0]
    assert record["rmse"] == plain["rmse"]


def test_a_method_is_fitted_again_on_validation_entries_too() -> None:
    settings: dict[str, Any] = {"latent_size": 4, "epochs": 12}
    als = replace(MEANS, name="small/als", model="als", protocol="entries", settings=settings, refit=True)
    (record,) = run_trial(trial(als))
    problem = PROTOCOLS["entries"](GENERATED, seed=0, new_share=0.2)
    chosen = ALS(seed=0, **settings).fit(problem.train, problem.validation)
    assert record["best_epoch"] == chosen.history_.best_epoch is not None
    assert (record["refit"], record["curve"]) == (True, run_trial(trial(replace(als, refit=False)))[0]["curve"])
    both = split_entries(generate(400, 300, density=0.1, seed=0).matrix, train=0.8, validation=0, test=0.2, seed=0)
    again = ALS(seed=0, **settings | {"epochs": chosen.history_.best_epoch + 1}).fit(both.train)
    test = problem.test["I"]
    assert record["rmse"] == pytest.approx(evaluate(again, test)[0].rmse, rel=1e-4)
    assert record["rmse"] != pytest.approx(evaluate(chosen, test)[0].rmse, rel=1e-4)
    # Settings are still chosen by entries that the model has not learned from.
    assert run_choice(trial(als))[0]["rmse"] == run_choice(trial(replace(als, refit=False)))[0]["rmse"]


def test_choosing_lets_nobody_in() -> None:
    assert all("cold_start_curve" not in record for record in run_choice(trial(MEANS)))


@pytest.mark.parametrize("protocol", ["areas", "random"])
def test_settings_are_chosen_by_entries_that_the_model_has_not_seen(protocol: str) -> None:
    """Validation entries may join what a model knows when it is tested, never when it is scored on them."""
    apart, joined = (trial(MEANS, protocol=protocol, joined=each) for each in (False, True))
    chosen, chosen_joined = ([record["rmse"] for record in run_choice(each)] for each in (apart, joined))
    assert chosen == chosen_joined
    tested, tested_joined = ([record["rmse"] for record in run_trial(each)] for each in (apart, joined))
    assert tested != tested_joined


def test_distributions_are_measured_where_a_model_has_them(ordinal: list[Record], means: list[Record]) -> None:
    for record in ordinal:
        assert 0 <= record["calibration_error"] < 0.5 and 0.5 < record["coverage"] <= 1
    absent = {"calibration_error", "coverage", "median_rmse", "median_mae"}
    assert not any(absent & record.keys() for record in means)
    assert all(record["confusion"] and record["level_rmse"] for record in (*ordinal, *means))


def test_calibration_is_that_of_the_test_entries() -> None:
    records = run_trial(trial(ORDINAL, protocol="random"))
    assert [record["area"] for record in records] == ["I"] and "cold_start_curve" not in records[0]
    problem = PROTOCOLS["random"](GENERATED, seed=0, new_share=0.2)
    model = OrdinalDMF(seed=0, **SMALL).fit(problem.train, problem.validation)
    found = calibration(model, problem.test["I"], coverage=0.9)
    assert records[0]["calibration_error"] == pytest.approx(found.error)
    assert records[0]["coverage"] == pytest.approx(found.coverage)
    assert records[0]["n_entries"] == found.n_entries == problem.test["I"].n_entries
    rows, columns, values = problem.test["I"].entries()
    for name, metric in (("level", "rmse"), ("median", "mae")):
        errors = model.predict_levels(rows, columns, metric=metric) - values
        assert records[0][f"{name}_rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
        assert records[0][f"{name}_mae"] == pytest.approx(np.mean(np.abs(errors)))
