"""A pandas table with missing values: impute pupils' marks in two lines, also for pupils who arrive after the fit.

The marks are generated; some are hidden from the table, and the imputed marks are compared with them.
"""

import numpy as np
import pandas as pd

from deepmf import ObservedMatrix
from deepmf.datasets import generate
from deepmf.metrics import rmse_error
from deepmf.sklearn import DMFImputer

SUBJECTS = (
    "algebra geometry physics chemistry biology astronomy informatics economics history geography "
    "literature grammar english french latin philosophy music painting theatre sports"
).split()
N_PUPILS, N_LATER = 400, 100


def generate_marks() -> pd.DataFrame:
    """Return all marks from 0 to 100, (pupils, subjects)."""
    drawn = generate(N_PUPILS, len(SUBJECTS), density=1.0, levels=None, rank=3, noise=0.3, seed=0).matrix
    table = np.clip(60 + 15 * drawn.to_array(), 0, 100).round()
    return pd.DataFrame(table, index=drawn.row_labels, columns=SUBJECTS)


def main() -> None:
    """Hide marks of a table, impute them, and compare them with the truth."""
    true = generate_marks()
    hidden = np.random.default_rng(0).random(true.shape) < 0.3
    table = true.mask(hidden)
    print(ObservedMatrix.from_table(table), table.iloc[:3, :6], sep="\n")

    completed = {}
    for name in ("means", "auto"):
        imputer = DMFImputer(name, random_state=0).set_output(transform="pandas").fit(table[N_LATER:])
        completed[name] = imputer.transform(table)
    print(completed["auto"].iloc[:3, :6].round(1))

    parts = {"pupils in training": slice(N_LATER, None), "pupils who came later": slice(N_LATER)}
    for pupils, part in parts.items():
        is_hidden = hidden[part]
        marks = true[part].to_numpy()[is_hidden]
        errors = {name: rmse_error(done[part].to_numpy()[is_hidden], marks) for name, done in completed.items()}
        print(f"RMSE on {marks.size} marks of {pupils}: means {errors['means']:.2f}, DMFImputer {errors['auto']:.2f}")


if __name__ == "__main__":
    main()
