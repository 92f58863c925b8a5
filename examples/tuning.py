"""Tuning: search for the settings of a model with optuna (`pip install optuna`).

The defaults are measured on several kinds of data, and OrdinalDMF chooses its settings itself: try
it before a search.
"""

import warnings

import optuna

from deepmf import ALS, split_entries
from deepmf.datasets import generate
from deepmf.errors import NotBetterThanMeans

N_TRIALS = 20


def main() -> None:
    """Search for settings of ALS on validation entries, then look at the test entries once."""
    ratings = generate(200, 80, density=0.2, noise=0.5, seed=0).matrix
    split = split_entries(ratings, train=0.7, validation=0.1, test=0.2, seed=0)

    def measure_error(trial: optuna.Trial) -> float:
        model = ALS(
            latent_size=trial.suggest_int("latent_size", 2, 32, log=True),
            penalty=trial.suggest_float("penalty", 0.03, 3.0, log=True),
            effect_penalty=trial.suggest_float("effect_penalty", 0.3, 30.0, log=True),
            epochs=5,
        )
        error = model.fit(split.train, split.validation).history_.best_error
        assert error is not None
        return error

    warnings.simplefilter("ignore", NotBetterThanMeans)  # some trials are worse than the means
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(measure_error, n_trials=N_TRIALS)
    print("best settings:", study.best_params)

    tuned = ALS(**study.best_params, epochs=5).fit(split.train, split.validation)
    default = ALS().fit(split.train, split.validation)
    rows, columns, values = split.test.entries()
    for name, model in (("defaults", default), ("tuned", tuned)):
        error = ((model.predict(rows, columns) - values) ** 2).mean() ** 0.5
        print(f"test RMSE, {name}: {error:.3f}")


if __name__ == "__main__":
    main()
