"""A regression on a survey with a quarter of its answers missing: twenty imputed surveys, pooled by Rubin's rules.

People with long hours leave out questions more often, so dropping incomplete rows loses most of the survey.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from deepmf.sklearn import DMFImputer, mask_entries, pool

NAMES = ["hours", "pay", "team", "stay"]
TRUTH = {"pay": 0.5, "team": 0.3}  # coefficients of the wish to stay


def generate_survey(n_people: int = 500) -> pd.DataFrame:
    """Return a survey with missing answers."""
    random = np.random.default_rng(1)
    hours = random.normal(size=n_people)
    pay = -0.6 * hours + random.normal(size=n_people)
    team = 0.5 * pay + random.normal(size=n_people)
    stay = sum(TRUTH[name] * column for name, column in (("pay", pay), ("team", team))) + random.normal(size=n_people)
    survey = pd.DataFrame(np.column_stack([hours, pay, team, stay]), columns=NAMES)
    return pd.DataFrame(mask_entries(survey, "mar", 0.33, seed=0).table)


def regress(survey: pd.DataFrame) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the coefficients of the wish to stay on pay and team, and their variances."""
    design = np.column_stack([np.ones(len(survey)), survey[list(TRUTH)]])
    stay = survey["stay"].to_numpy()
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ stay
    noise = np.sum(np.square(stay - design @ coefficients)) / (len(survey) - design.shape[1])
    return coefficients[1:], noise * np.diag(inverse)[1:]


def main() -> None:
    """Regress on twenty imputed surveys, and pool the coefficients."""
    survey = generate_survey()
    complete = survey.dropna()
    share = survey.isna().mean().mean()
    print(f"{share:.0%} of the answers are missing; {len(complete)} of {len(survey)} rows are complete")

    imputer = DMFImputer("gaussian", random_state=0).fit(survey)
    estimates, variances = zip(*(regress(each) for each in imputer.impute_many(survey, 20)), strict=True)
    pooled = pool(estimates, variances, complete_df=len(survey) - 3)

    truth = np.array(list(TRUTH.values()))
    by_means = regress(survey.fillna(survey.mean()))[0]
    errors = (np.abs(found - truth).mean() for found in (by_means, pooled.estimate))
    print("error of the coefficients: means {:.3f}, DMFImputer {:.3f}".format(*errors))
    for name, estimate, low, high in zip(TRUTH, pooled.estimate, *pooled.interval(0.95), strict=True):
        print(f"{name}: {estimate:.2f} ({low:.2f} to {high:.2f}), truth {TRUTH[name]}")


if __name__ == "__main__":
    main()
