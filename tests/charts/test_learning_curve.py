"""The learning curve: few points for many epochs, the kept epoch among them."""

import pytest

from deepmf.charts.learning_curve import learning_curve


def n_points(chart: str) -> int:
    return chart.partition('points="')[2].partition('"')[0].count(",")


@pytest.mark.parametrize(("n_epochs", "shown"), [(2, 2), (300, 300), (5000, 301)])
def test_many_epochs_are_thinned_and_the_kept_one_stays(n_epochs: int, shown: int) -> None:
    points = [(epoch, 1.0 / epoch) for epoch in range(1, n_epochs + 1)]
    kept = 2 if n_epochs < 5000 else 3
    chart = learning_curve("Loss", points, what="loss", kept=kept)
    assert n_points(str(chart)) == shown
    assert f"{kept}: {1 / kept:.4g}" in str(chart)
    assert chart.title == f"Loss: 1 in epoch 1, {1 / n_epochs:.4g} in epoch {n_epochs}"


def test_an_epoch_that_was_not_measured_has_no_ring() -> None:
    points = [(2, 0.5), (4, 0.4)]
    assert str(learning_curve("Loss", points, what="loss", kept=3)) == str(learning_curve("Loss", points, what="loss"))
