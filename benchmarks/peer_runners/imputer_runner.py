"""scikit-learn's imputers and deepmf's: a table with missing cells, completed.

scikit-learn's see standardised columns, as its guide advises; deepmf's sees the table as it is.
"""

import warnings
from typing import Any, NamedTuple

import exchange
import numpy as np


class Completed(NamedTuple):
    """The completed table, and what the imputer chose."""

    table: exchange.Floats
    noted: dict[str, Any]


def fit(task: exchange.Task, settings: exchange.Settings) -> Completed:
    """Complete the table."""
    warnings.simplefilter("ignore")  # the iterative imputer says where it has not converged
    table = np.full(task.shape, np.nan)
    known = task.known
    table[known.rows, known.columns] = known.values
    imputer = make_model(settings)
    if settings["imputer"] == "DMFImputer":
        return Completed(
            imputer.fit_transform(table), {"chosen": getattr(imputer, "chosen_model_", "")}
        )
    spreads = np.nanstd(table, axis=0)
    means, units = np.nanmean(table, axis=0), np.where(spreads > 0, spreads, 1.0)
    completed = imputer.fit_transform((table - means) / units)
    return Completed(completed * units + means, {})


def make_model(settings: exchange.Settings) -> Any:
    """Return the imputer that the settings name, which imports it."""
    name = settings["imputer"]
    if name == "DMFImputer":
        from deepmf.sklearn import DMFImputer

        return DMFImputer(settings["model"], keep_empty_features=True, random_state=0)
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

    imputers = {
        "SimpleImputer": SimpleImputer,
        "KNNImputer": KNNImputer,
        "IterativeImputer": IterativeImputer,
    }
    seeded = {"random_state": 0} if name == "IterativeImputer" else {}
    return imputers[name](keep_empty_features=True, **seeded)


def reply(model: Completed, task: exchange.Task, question: exchange.Question) -> exchange.Answer:
    """Read the hidden cells off the completed table."""
    return exchange.Answer(model.table[question.rows, question.columns])


if __name__ == "__main__":
    exchange.main(fit, reply, packages=["scikit-learn", "numpy"], prepare=make_model)
