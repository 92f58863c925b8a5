"""A model in two lines, and in a notebook."""

import warnings

import pytest

from deepmf.data.splits import Split, split_entries
from deepmf.data.synthetic.generator import generate
from deepmf.errors import NotBetterThanMeans
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.models.registry import HOMES, model_class


@pytest.fixture(scope="module")
def split() -> Split:
    return split_entries(generate(60, 40, density=0.5, seed=0).matrix, seed=0)


def test_not_fitted_it_is_as_it_is_made() -> None:
    assert repr(ALS()) == "ALS()"
    assert repr(ALS(latent_size=3, patience=None)) == "ALS(patience=None, latent_size=3)"
    assert eval(repr(ALS(seed=7)), {"ALS": ALS}).settings == ALS(seed=7).settings
    shown = ALS(seed=7)._repr_html_()
    assert "<th>settings</th><td>seed=7</td>" in shown and "not yet" in shown


@pytest.mark.parametrize("name", HOMES)
def test_every_model_is_shown(name: str) -> None:
    model = model_class(name)()
    assert repr(model) == f"{HOMES[name][1]}()"
    assert HOMES[name][1] in model._repr_html_()


def test_fitted_it_says_what_it_knows_and_how_well_it_predicts(split: Split) -> None:
    model = ALS(epochs=3, seed=1).fit(split.train, split.validation)
    history = model.history_
    assert repr(model).splitlines() == [
        f"ALS(60 x 40, {split.train.n_entries} entries, validation RMSE {history.best_error:.3f}; "
        f"means {history.means_error:.3f})",
        "  settings: seed=1, epochs=3",
    ]
    shown = model._repr_html_()
    assert shown.count("<svg") == 2
    assert f"<th>matrix</th><td>60 rows x 40 columns, {split.train.n_entries} entries</td>" in shown
    plain = Means().fit(split.train)
    assert repr(plain) == f"Means(60 x 40, {split.train.n_entries} entries)\n  settings: all by default"
    assert "<svg" not in plain._repr_html_()


def test_chosen_settings_are_told_apart_from_given_ones(split: Split) -> None:
    model = OrdinalDMF(effort="quick", epochs=1, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotBetterThanMeans)
        model.fit(split.train, split.validation)
    _, settings = repr(model).splitlines()
    assert settings == f"  settings: epochs=1, device='cpu', effort='quick'; {len(model.chosen_)} chosen (see chosen_)"
    shown = model._repr_html_()
    assert "<th>settings</th><td>epochs=1, device=" in shown
    assert f"landmarks={model.settings.landmarks}</td>" in shown
    assert "landmarks" not in repr(OrdinalDMF(**model.own_settings))


def test_features_are_listed(split: Split) -> None:
    films = {"year": range(40), "genre": ["a", "b"] * 20} | {f"tag {k}": ["x", "y"] * 20 for k in range(12)}
    model = Means().fit(split.train, column_features=Features.from_columns(split.train.column_labels, films))
    shown = model._repr_html_()
    assert "<th>column features</th><td>year (number), genre (category), tag 0 (category)" in shown
    assert "tag 9 (category) and 2 more</td>" in shown
    assert "row features" not in shown and "features" not in Means().fit(split.train)._repr_html_()


def test_extended_it_counts_what_it_knows(split: Split) -> None:
    model = Means().fit(split.train)
    column = split.train.column_labels[0]
    more = model.extend(ObservedMatrix.from_entries(["new"], [column], [5.0], split.train.scale))
    assert repr(more).startswith(f"Means(61 x 40, {split.train.n_entries + 1} entries)")
    fewer = more.forget(rows=["new", split.train.row_labels[0]])
    n_gone = split.train.row_counts[0]
    assert repr(fewer).startswith(f"Means(60 x 40, {split.train.n_entries - n_gone} entries)")
