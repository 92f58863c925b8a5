"""Arrivals: rows and columns that arrive with few entries, and how true probabilities are."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arrival_probabilities import Arrivals, Side, draw_first, main

from deepmf.datasets import generate
from deepmf.models.bayesian import BayesianMF
from deepmf.models.ordinal.model import OrdinalDMF

SMALL = generate(150, 80, density=0.2, noise=0.5, named=False, seed=0).matrix


def test_arrivals_are_kept_out_and_arrive_with_some_entries_each() -> None:
    arrivals = Arrivals.draw(SMALL, "both", seed=1)
    train = arrivals.train
    assert not np.isin(np.flatnonzero(arrivals.new_rows), train.row_labels).any()
    assert not np.isin(np.flatnonzero(arrivals.new_columns), train.column_labels).any()
    assert 0.6 < train.n_entries / SMALL.n_entries < 0.75  # .85 * .85 * .95
    groups, allowed = np.array([4, 4, 4, 2, 2, 9]), np.array([1, 1, 1, 1, 0, 0], dtype=bool)
    drawn = draw_first(groups, allowed, 2)
    assert drawn.sum() == 3 and drawn[3] and not (drawn & ~allowed).any()


@pytest.mark.slow
@pytest.mark.parametrize("side", ["rows", "columns", "both"])
def test_probabilities_for_arrivals_are_at_least_as_true_as_frequencies(side: Side) -> None:
    arrivals = Arrivals.draw(SMALL, side, seed=0)
    model = BayesianMF(epochs=60, latent_size=5, device="cpu", presence=None).fit(arrivals.train)
    known, *figures = arrivals.measure(model, side, (1, 3, 10))
    assert known.side == "known" and known.coverage > 0.85
    for figure in figures:
        assert figure.side == side and figure.n_entries > 30
        assert figure.log_loss < figure.frequencies_loss + 0.02
        assert 0.84 < figure.coverage <= 1.0


@pytest.mark.slow
def test_a_single_entry_is_not_taken_for_certainty() -> None:
    arrivals = Arrivals.draw(SMALL, "rows", seed=0)
    model = OrdinalDMF(networks=0, linear_iterations=60, device="cpu", presence=None)
    model.fit(arrivals.train)
    labels = model.column_labels_
    guest = model.fold_in(labels[:1], [5.0])
    columns = np.arange(labels.size)
    learned = replace(guest.predictor, confidence=None)
    surest = learned.distribution(np.zeros_like(columns), columns).probabilities.max(axis=1)
    assert guest.predict_distribution(labels).max(axis=1).mean() < surest.mean() - 0.02
    lower, upper = guest.predict_interval(labels, coverage=0.9)
    assert np.mean(upper - lower) > 1.2


@pytest.mark.slow
def test_the_command_prints_a_line_for_each_number_of_entries(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "entries.csv"
    rows, columns, values = SMALL.entries()
    lines = [
        f"{row},{column},{value}" for row, column, value in zip(rows, columns, values, strict=True)
    ]
    file.write_text("\n".join(["row,column,value", *lines]))
    arguments = [str(file), "--models", "bayesian", "--sides", "rows", "--counts", "1"]
    assert main(arguments) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["side"] for record in printed] == ["known", "rows", "presence"]
    forecasts = [count for _, _, count in printed[1]["reliability"]]
    assert sum(forecasts) == 5 * printed[1]["n"]
    assert printed[1]["known"] == 1 and 0.0 < printed[1]["log_loss"] < 2.0
    assert printed[2]["expected"] > 0.0 and printed[2]["observed"] > 0.0
