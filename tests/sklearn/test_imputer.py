"""The imputer keeps scikit-learn's rules and does for a table with holes what a data scientist
expects."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from deepmf.datasets import generate
from deepmf.errors import BadEntries, BadSetting, CannotExtend, NothingObserved, OffScale
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models import registry
from deepmf.models.registry import model_class
from deepmf.sklearn.blend import WHOLE_ROWS
from deepmf.sklearn.candidates import AUTO, MODELS, TABLE_SETTINGS
from deepmf.sklearn.imputer import DMFImputer
from deepmf.sklearn.scores import hidden_entries_score

Array = npt.NDArray[np.float64]


def small(**parameters: Any) -> DMFImputer:
    """An imputer that fits in a blink."""
    usual = {
        "model": "dmf",
        "hidden_sizes": (16,),
        "latent_size": 4,
        "epochs": 5,
        "random_state": 0,
    }
    return DMFImputer(**(usual | parameters))


def low_rank(
    n_rows: int, n_columns: int, *, rank: int = 3, noise: float = 0.3, seed: int = 0
) -> Array:
    """A full table of low rank whose columns have units that differ by powers of ten."""
    generated = generate(
        n_rows,
        n_columns,
        density=1.0,
        rank=rank,
        levels=None,
        noise=noise,
        row_effect=0.3,
        popularity=0.0,
        selection=0.0,
        named=False,
        seed=seed,
    )
    random = np.random.default_rng(seed)
    return generated.matrix.to_array() * 10.0 ** random.integers(-3, 5, n_columns) + random.normal(
        0, 100, n_columns
    )


def holes(table: Array, share: float, seed: int = 0) -> Array:
    """The table with a share of its cells missing."""
    return np.where(np.random.default_rng(seed).random(table.shape) < share, np.nan, table)


@pytest.fixture(scope="module")
def table() -> Array:
    return holes(low_rank(40, 6), 0.2)


@pytest.fixture(scope="module")
def fitted(table: Array) -> DMFImputer:
    return small().fit(table)


@parametrize_with_checks(
    [
        small(epochs=2),
        DMFImputer(),
        DMFImputer(model="means", scale="shared"),
        DMFImputer(model="means", add_indicator=True),
    ]
)
@pytest.mark.slow
def test_keeps_the_rules_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_observed_entries_come_back_unchanged(table: Array, fitted: DMFImputer) -> None:
    given = table.copy()
    completed = fitted.transform(given)
    np.testing.assert_array_equal(given, table)
    observed = ~np.isnan(table)
    np.testing.assert_array_equal(completed[observed], table[observed])
    assert np.all(np.isfinite(completed))


def test_rows_of_the_fit_are_completed_like_new_ones(table: Array, fitted: DMFImputer) -> None:
    completed = fitted.transform(table)
    np.testing.assert_array_equal(small().fit_transform(table), completed)
    alone = np.vstack([fitted.transform(row[None]) for row in table])
    np.testing.assert_allclose(alone, completed, rtol=1e-5)
    np.testing.assert_allclose(fitted.transform(table[::-1]), completed[::-1], rtol=1e-5)


def test_the_unit_of_a_column_does_not_matter(table: Array) -> None:
    factors, shifts = np.array([1000.0, 1e-3, 1, 7, 2, 1]), np.array([0, 5.0, -3, 0, 100, 0])
    here, there = (
        DMFImputer(model="als", random_state=0).fit_transform(each)
        for each in (table, table * factors + shifts)
    )
    np.testing.assert_allclose(there, here * factors + shifts, rtol=1e-4)


def test_answers_stay_within_what_the_column_showed(table: Array, fitted: DMFImputer) -> None:
    wild = table * np.where(np.arange(6) == 2, 1e6, 1)
    completed = fitted.transform(wild)
    observed = ~np.isnan(wild)
    np.testing.assert_array_equal(completed[observed], wild[observed])
    lows, highs = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
    inside = (completed >= lows) & (completed <= highs)
    assert np.all(inside[~observed])


@pytest.mark.slow
def test_absent_is_missing_and_a_stored_zero_is_an_entry(table: Array) -> None:
    with_zeros = np.where(np.arange(40)[:, None] % 7 == 0, table * 0, table)
    rows, columns = np.nonzero(~np.isnan(with_zeros))
    stored = scipy.sparse.coo_array((with_zeros[rows, columns], (rows, columns)), shape=table.shape)
    assert np.count_nonzero(stored.data == 0) > 20
    expected = small().fit_transform(with_zeros)
    for kind in ("csr", "csc", "coo", "lil"):
        completed = small().fit_transform(stored.asformat(kind))
        assert isinstance(completed, np.ndarray)
        np.testing.assert_array_equal(completed, expected)


@pytest.mark.slow
def test_frames(table: Array) -> None:
    counts = np.round(np.where(np.isnan(table), np.nan, np.arange(6)))
    for values in (table, counts):
        names = list("abcdef")
        frame = pd.DataFrame(values, columns=names, index=np.arange(40) + 7)
        expected = small().fit_transform(values)
        imputer = small().set_output(transform="pandas")
        completed = imputer.fit_transform(frame)
        pd.testing.assert_frame_equal(
            completed, pd.DataFrame(expected, columns=names, index=frame.index)
        )
        assert imputer.get_feature_names_out().tolist() == names
        assert imputer.model_.column_labels_.tolist() == names
        polars = pl.from_pandas(frame)  # null where missing
        assert polars.null_count().row(0) != (0,) * 6
        np.testing.assert_array_equal(small().fit_transform(polars), expected)
        assert small().set_output(transform="polars").fit_transform(polars).columns == names
    np.testing.assert_array_equal(small().fit_transform(frame.astype("Int64")), expected)


@pytest.mark.slow
def test_a_column_without_entries(table: Array) -> None:
    table = pd.DataFrame(table, columns=list("abcdef"))
    table["c"] = np.nan
    full = table.assign(c=3.0)
    with pytest.warns(NothingObserved, match="'c'"):
        imputer = small().fit(table)
    assert imputer.get_feature_names_out().tolist() == list("abdef")
    expected = small().fit_transform(table.drop(columns="c"))
    np.testing.assert_array_equal(imputer.transform(full), expected)
    kept = small(keep_empty_features=True).fit(table)
    assert kept.get_feature_names_out().tolist() == list("abcdef")
    np.testing.assert_array_equal(kept.transform(table)["c"], np.zeros(40))
    np.testing.assert_array_equal(kept.transform(full)["c"], np.full(40, 3.0))
    np.testing.assert_array_equal(np.delete(kept.transform(table), 2, axis=1), expected)


def test_a_row_without_entries_gets_the_means(table: Array, fitted: DMFImputer) -> None:
    empty = np.full((2, 6), np.nan)
    np.testing.assert_allclose(fitted.transform(empty), np.tile(np.nanmean(table, axis=0), (2, 1)))
    assert np.all(np.isfinite(small().fit_transform(np.vstack([table, empty]))))


def test_too_little_to_learn_from_gives_means() -> None:
    one_row = small(keep_empty_features=True).fit([[1, np.nan, 3]])
    np.testing.assert_array_equal(one_row.transform([[np.nan, 2, np.nan]]), [[1, 2, 3]])
    one_column = small().fit([[1.0], [np.nan], [4.0]])
    assert one_column.model_ is None
    np.testing.assert_array_equal(one_column.transform([[np.nan], [7]]), [[2.5], [7]])
    with pytest.raises(BadEntries, match="2 x 3"):
        small().fit(np.full((2, 3), np.nan))


def test_constant_columns_stay_constant(table: Array) -> None:
    table = table.copy()
    table[:, 1] = np.where(np.isnan(table[:, 1]), np.nan, 0.1)
    completed = small().fit_transform(table)
    assert set(completed[:, 1]) == {0.1}
    everything = np.where(np.isnan(table), np.nan, 5.0)
    np.testing.assert_array_equal(small().fit_transform(everything), np.full(table.shape, 5.0))


def test_levels_where_values_repeat(table: Array) -> None:
    random = np.random.default_rng(0)
    mixed = np.column_stack([table[:, :3], holes(random.choice([0.5, 1, 4], (40, 2)), 0.3)])
    values, levels = (
        DMFImputer("means", answers=answers).fit_transform(mixed)
        for answers in ("values", "levels")
    )
    np.testing.assert_array_equal(levels[:, :3], values[:, :3])
    missing = np.isnan(mixed[:, 3:])
    assert set(levels[:, 3:].ravel()) == {0.5, 1, 4}
    assert not set(values[:, 3:][missing]) & {0.5, 1, 4}
    nearest = Scale([0.5, 1, 4]).nearest_level(values[:, 3:])
    np.testing.assert_array_equal(levels[:, 3:], nearest)
    empty = DMFImputer("means", answers="levels").fit(mixed).transform(np.full((1, 5), np.nan))
    assert set(empty[0, 3:]) <= {0.5, 1, 4}


@pytest.mark.slow
def test_a_shared_scale() -> None:
    stars = generate(60, 12, density=0.6, named=False, seed=0).matrix.to_array()
    imputer = small(model="dmf-d", scale="shared", answers="levels").fit(stars)
    assert imputer.model_.scale_ == Scale([1, 2, 3, 4, 5])
    for each in (imputer, small(scale="shared", answers="levels").fit(stars)):
        assert set(each.transform(stars).ravel()) <= {1, 2, 3, 4, 5}
    assert imputer.transform([[9.0, *stars[0, 1:]]])[0, 0] == 9  # seen as 5, and given back
    np.testing.assert_array_equal(
        imputer.transform([[9.0, *stars[0, 1:]]])[0, 1:],
        imputer.transform([[5.0, *stars[0, 1:]]])[0, 1:],
    )
    strict = small(scale=Scale([1, 2, 3, 4, 5])).fit(stars)
    np.testing.assert_array_equal(
        strict.transform(stars), small(scale="shared").fit_transform(stars)
    )
    with pytest.raises(OffScale, match="'x0'"):
        strict.transform([stars[0], [9.0, *stars[0, 1:]]])
    with pytest.raises(BadSetting, match="DMF-D"):
        small(model="dmf-d").fit(stars)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in registry.MODELS if "II" in model_class(name).predicts]
)
def test_every_model_that_extends_to_rows(name: str) -> None:
    stars = generate(40, 8, density=0.6, named=False, seed=0).matrix.to_array()
    settings = {"means": {}, "dmf-o": {"epochs": 2, "views": 2}}.get(name, {"epochs": 2})
    completed = DMFImputer(
        model=name, scale="shared", settings=settings, random_state=0
    ).fit_transform(stars)
    assert np.all((completed >= 1) & (completed <= 5))


def test_settings_reach_the_model(table: Array) -> None:
    fitted = small(dropout=0.25, learning_rate=0.005, settings={"gamma": 1e-4, "loss": "mean"}).fit(
        table
    )
    settings = fitted.model_.settings.to_dict()
    expected = {
        "dropout": 0.25,
        "learning_rate": 0.005,
        "gamma": 1e-4,
        "loss": "mean",
        "hidden_sizes": (16,),
    }
    assert (
        settings.items() >= (expected | {"averaging": TABLE_SETTINGS["dmf"]["averaging"]}).items()
    )
    for parameters, error, message in (
        ({"model": "dfm"}, BadSetting, "'dmf'"),
        ({"model": "rdmc"}, CannotExtend, "'rdmc'"),
        ({"settings": {"gama": 1}}, BadSetting, "'gamma'"),
        ({"settings": {"epochs": 3}}, BadSetting, "twice"),
        ({"settings": {"seed": 3}}, BadSetting, "random_state"),
        ({"model": "als", "dropout": 0.5}, BadSetting, "setting"),
        ({"model": "auto"}, BadSetting, "epochs"),
        ({"scale": "column"}, BadSetting, "^scale"),
        ({"answers": "stars"}, BadSetting, "^answers"),
        ({"effort": "much"}, BadSetting, "^effort"),
    ):
        with pytest.raises(error, match=message):
            small(**parameters).fit(table)


def test_progress_is_shown_on_request_alone(
    table: Array, capsys: pytest.CaptureFixture[str]
) -> None:
    for verbose in (False, 0, None):  # None: standard error is no terminal
        DMFImputer("als", epochs=2, verbose=verbose).fit(table)
        assert capsys.readouterr() == ("", "")
    DMFImputer("als", epochs=2, verbose=True).fit(table)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fitting ALS: epoch 2 of 2" in err


@pytest.mark.slow
def test_in_a_pipeline_and_a_search() -> None:
    truth = low_rank(120, 8, noise=0.1)
    table = pd.DataFrame(holes(truth, 0.2), columns=list("abcdefgh"))
    pipeline = make_pipeline(DMFImputer(model="als"), StandardScaler(), LinearRegression())
    search = GridSearchCV(pipeline, {"dmfimputer__latent_size": [1, 3]}, cv=2)
    assert search.fit(table, truth[:, 0]).best_score_ > 0.8
    grid = {"dropout": [0.5, 0.99], "epochs": [20]}
    search = GridSearchCV(small(), grid, scoring=hidden_entries_score, cv=2, refit=False).fit(table)
    assert search.best_params_["dropout"] == 0.5


@pytest.mark.slow
def test_without_scikit_learn_the_extra_is_named() -> None:
    code = "import sys; sys.modules['sklearn'] = None; from deepmf.sklearn import DMFImputer"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert re.search(r"MissingDependency: .*deepmf\[sklearn\]", shown)


@pytest.fixture
def quick_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blend suits no table, and the network that is chosen from instead learns nothing in no
    time."""
    settings = {"views": 1, "linear_size": 0, "epochs": 2, "hidden_sizes": (4,)}
    monkeypatch.setitem(TABLE_SETTINGS, "dmf-o", settings | {"neighbours": None})
    monkeypatch.setattr(
        "deepmf.sklearn.imputer.list_candidates",
        lambda asked, *_, **__: MODELS if asked == AUTO else (asked,),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("quick_models")
def test_the_model_is_chosen_by_hidden_cells() -> None:
    assert DMFImputer().model == "auto"
    table = holes(low_rank(120, 8, noise=0.1), 0.2)
    imputer = DMFImputer(random_state=0).fit(table)
    assert imputer.chosen_model_ == "als" and type(imputer.model_).__name__ == "ALS"
    assert imputer.hidden_errors_.keys() == {"means", "als", "dmf-o"}
    assert imputer.hidden_errors_["als"] < 0.7 * imputer.hidden_errors_["means"]
    # fitted to all in the end
    assert imputer.model_.entries_.train.n_entries == np.count_nonzero(~np.isnan(table))
    by_name = DMFImputer("als", random_state=0)
    np.testing.assert_array_equal(imputer.transform(table), by_name.fit_transform(table))
    assert (by_name.chosen_model_, by_name.hidden_errors_) == ("als", {})
    assert DMFImputer().fit([[1.0], [np.nan]]).chosen_model_ == "means"


@pytest.mark.slow
def test_by_default_whole_rows_are_completed_by_a_blend(table: Array) -> None:
    imputer = DMFImputer(random_state=0).fit(table)
    assert imputer.weights_.keys() <= set(WHOLE_ROWS) and imputer.hidden_errors_ == {}
    assert sum(imputer.weights_.values()) == pytest.approx(1.0)
    assert imputer.weights_[imputer.chosen_model_] == max(imputer.weights_.values())
    completed = imputer.transform(table)
    observed = ~np.isnan(table)
    np.testing.assert_array_equal(completed[observed], table[observed])
    np.testing.assert_array_equal(DMFImputer(random_state=0).fit_transform(table), completed)
    alone = np.vstack([imputer.transform(row[None]) for row in table])
    np.testing.assert_allclose(alone, completed, rtol=1e-6)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(imputer)).transform(table), completed)  # noqa: S301


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_default_is_better_than_a_regression_for_each_column_and_than_neighbours() -> None:
    random = np.random.default_rng(0)
    kind = random.normal(size=(3, 6))[random.integers(0, 3, 150)] * 2
    truth = (
        kind
        + random.normal(size=(150, 2)) @ random.normal(size=(2, 6))
        + 0.3 * random.normal(size=(150, 6))
    )
    truth /= truth.std(axis=0)
    table = holes(truth, 0.2)
    missing = np.isnan(table)
    errors = {
        type(each).__name__: rmse_error(each.fit_transform(table)[missing], truth[missing])
        for each in (DMFImputer(random_state=0), IterativeImputer(random_state=0), KNNImputer())
    }
    assert errors["DMFImputer"] < 0.95 * min(errors["IterativeImputer"], errors["KNNImputer"]), (
        errors
    )


def test_what_completes_whole_rows_by_name(table: Array) -> None:
    gaussian = DMFImputer("gaussian", random_state=0).fit(table)
    assert (gaussian.chosen_model_, gaussian.weights_, gaussian.hidden_errors_) == (
        "gaussian",
        {"gaussian": 1.0},
        {},
    )
    with pytest.raises(BadSetting, match="Gaussian"):
        gaussian.transform(table, return_interval=True)
    first, second = DMFImputer("trees", random_state=0).fit(table).impute_many(table, 2)
    assert not np.array_equal(first, second)
    np.testing.assert_allclose(
        DMFImputer("column-means").fit_transform(table)[np.isnan(table)][0], np.nanmean(table[:, 2])
    )
    for parameters, message in (
        ({"epochs": 3}, "epochs"),
        ({"scale": "shared"}, "'columns'"),
        ({"model": "gausian"}, "'gausian'"),
    ):
        with pytest.raises(BadSetting, match=message):
            DMFImputer(**({"model": "gaussian"} | parameters)).fit(table)


def test_intervals_and_draws_of_a_blend() -> None:
    truth = low_rank(300, 6, noise=0.3)
    table = holes(truth, 0.2)
    missing = np.isnan(table)
    imputer = DMFImputer(random_state=0).fit(table)
    completed, interval = imputer.transform(table, return_interval=True, coverage=0.8)
    inside = (interval.lower <= truth) & (truth <= interval.upper)
    assert 0.7 < inside[missing].mean() < 0.92
    assert not np.array_equal(completed, next(imputer.impute_many(table, 1)))
    empty = imputer.transform(np.full((1, 6), np.nan), return_interval=True)[1]
    assert 0.85 < np.mean((truth >= empty.lower) & (truth <= empty.upper)) < 0.95


def test_text_and_categories_in_a_blend() -> None:
    truth = mixed_frame()
    missing = np.random.default_rng(1).random(truth.shape) < 0.15
    completed = DMFImputer(random_state=0).fit_transform(truth.mask(missing))
    assert completed.dtypes.tolist() == truth.dtypes.tolist() and completed.notna().all(axis=None)
    assert (completed["colour"] == truth["colour"])[missing[:, 3]].mean() > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("mark", [-999, -999.0])
def test_a_number_stands_for_what_is_missing(table: Array, mark: float) -> None:
    expected = DMFImputer("als", random_state=0).fit_transform(table)
    filled = np.where(np.isnan(table), mark, table)
    imputer = DMFImputer("als", random_state=0, missing_values=mark)
    np.testing.assert_array_equal(imputer.fit_transform(filled), expected)
    np.testing.assert_array_equal(imputer.fit_transform(pd.DataFrame(filled)), expected)
    # NaN is missing all the same
    np.testing.assert_array_equal(imputer.fit_transform(table), expected)
    rows, columns = np.nonzero(np.ones(table.shape))
    stored = scipy.sparse.coo_array((filled.ravel(), (rows, columns)), shape=table.shape).tocsr()
    np.testing.assert_array_equal(imputer.fit_transform(stored), expected)
    assert np.isnan(stored.data).sum() == 0  # what was given stays as it was


def test_indicators_of_what_was_missing(table: Array) -> None:
    table = table.copy()
    table[:, 2] = np.arange(40)
    frame = pd.DataFrame(table, columns=list("abcdef"))
    imputer = DMFImputer("als", random_state=0, add_indicator=True).set_output(transform="pandas")
    completed = imputer.fit_transform(frame)
    added = [f"missingindicator_{name}" for name in "abdef"]
    assert (
        completed.columns.tolist()
        == [*"abcdef", *added]
        == imputer.get_feature_names_out().tolist()
    )
    np.testing.assert_array_equal(completed[added], frame.isna().drop(columns="c").astype(float))
    full = imputer.transform(frame.fillna(1.0))
    assert not full[added].any(axis=None)


def mixed_frame(n_rows: int = 120, seed: int = 0) -> pd.DataFrame:
    """A full table whose columns all follow from one hidden number."""
    random = np.random.default_rng(seed)
    hidden = random.normal(size=n_rows)
    order = pd.CategoricalDtype(["small", "medium", "large"], ordered=True)
    return pd.DataFrame(
        {
            "length": hidden + 0.1 * random.normal(size=n_rows),
            "weight": 100 * hidden + 10 * random.normal(size=n_rows),
            "depth": hidden - 0.1 * random.normal(size=n_rows),
            "colour": np.where(hidden > 0, "red", "blue"),
            "size": pd.Categorical.from_codes(np.digitize(hidden, [-0.5, 0.5]), dtype=order),
        },
        index=np.arange(n_rows) + 10,
    )


@pytest.mark.slow
def test_text_and_categories_are_filled_and_given_back_as_they_were() -> None:
    truth = mixed_frame()
    missing = np.random.default_rng(1).random(truth.shape) < 0.15
    table = truth.mask(missing)
    imputer = DMFImputer("als", random_state=0).fit(table)
    completed = imputer.transform(table)
    assert isinstance(completed, pd.DataFrame)
    assert completed.dtypes.tolist() == truth.dtypes.tolist()
    assert completed.index.equals(truth.index) and completed.columns.equals(truth.columns)
    assert completed.notna().all(axis=None)
    pd.testing.assert_frame_equal(completed.where(~missing), truth.where(~missing))
    for name, at_least in (("colour", 0.85), ("size", 0.7)):
        places = missing[:, truth.columns.get_loc(name)]
        assert (completed[name] == truth[name])[places].mean() >= at_least, name
    wrapped = DMFImputer("als", random_state=0).set_output(transform="pandas").fit_transform(table)
    pd.testing.assert_frame_equal(wrapped, completed)

    polars = pl.from_pandas(table).with_columns(
        pl.col("size").cast(pl.Enum(["small", "medium", "large"]))
    )
    assert (
        DMFImputer("als", random_state=0)
        .fit_transform(polars)
        .equals(pl.from_pandas(completed).cast(dict(polars.schema)))
    )
    objects = DMFImputer("als", random_state=0).fit_transform(
        table.drop(columns="size").to_numpy(dtype=object)
    )
    assert objects.dtype == object and set(objects[:, 3]) == {"red", "blue"}


def test_new_rows_with_text() -> None:
    imputer = DMFImputer("als", random_state=0, add_indicator=True).fit(mixed_frame())
    new = pd.DataFrame(
        {"length": [2.0, np.nan], "weight": [200.0, -200.0], "depth": [np.nan, np.nan]}
    )
    new = new.assign(colour=[None, "pink"], size=pd.Categorical([None, "small"]))
    completed = imputer.transform(new)
    assert completed["colour"].tolist() == ["red", "pink"]
    # also where the new column does not know all
    assert completed["size"].tolist() == ["large", "small"]
    assert completed.shape == (2, 5)  # nothing was missing in fit
    with pytest.raises(BadSetting, match="'colour'"):
        DMFImputer(scale="shared").fit(mixed_frame())


def test_numbers_with_a_mark_that_is_text() -> None:
    imputer = DMFImputer("als", random_state=0, missing_values="?")
    expected = DMFImputer("als", random_state=0).fit_transform([[1, np.nan], [2, 3], [3, 4]])
    completed = imputer.fit_transform([[1.0, "?"], [2.0, 3.0], [3.0, 4.0]])
    assert completed.dtype == np.float64
    np.testing.assert_array_equal(completed, expected)
    alone = imputer.transform(np.array([[1, np.nan]]))
    np.testing.assert_allclose(alone, expected[:1], rtol=1e-6)


def test_columns_of_categories_have_no_intervals() -> None:
    frame = mixed_frame()
    imputer = DMFImputer(random_state=0).fit(frame)
    _, interval = imputer.transform(frame.assign(length=np.nan), return_interval=True)
    lower = interval.lower.to_numpy()
    assert np.isnan(lower[:, 3:]).all() and np.isfinite(lower[:, :3]).all()


def test_intervals_of_models_that_are_named(table: Array) -> None:
    stars = generate(60, 12, density=0.6, named=False, seed=0).matrix.to_array()
    settings = {"views": 1, "linear_size": 0, "hidden_sizes": (4,)}
    ordinal = DMFImputer("dmf-o", scale="shared", epochs=2, settings=settings, random_state=0).fit(
        stars
    )
    _, interval = ordinal.transform(stars, return_interval=True)
    assert set(interval.lower.ravel()) | set(interval.upper.ravel()) <= {1, 2, 3, 4, 5}
    with pytest.raises(BadSetting, match="intervals"):
        DMFImputer("als").fit(table).transform(table, return_interval=True)
    with pytest.raises(BadSetting, match="^coverage"):
        ordinal.transform(stars, return_interval=True, coverage=2)
    alone = DMFImputer("als").fit([[1.0], [3.0], [np.nan]])
    lower, upper = alone.transform([[np.nan], [7]], return_interval=True)[1]
    assert 1 < lower[0, 0] < 1.5 and 2.5 < upper[0, 0] < 3 and lower[1, 0] == upper[1, 0] == 7


def test_draws_of_levels_and_categories() -> None:
    stars = generate(60, 12, density=0.6, named=False, seed=0).matrix.to_array()
    once, twice = (
        DMFImputer("means", scale="shared", random_state=0).fit(stars).impute_many(stars, 2)
    )
    assert set(once.ravel()) == {1, 2, 3, 4, 5} and not np.array_equal(once, twice)
    frame = mixed_frame(300)
    imputer = DMFImputer("means", random_state=0).fit(frame)
    nothing = pd.DataFrame(np.nan, index=range(300), columns=frame.columns).astype(
        frame.dtypes.to_dict()
    )
    drawn = next(imputer.impute_many(nothing, 1))
    assert 0.35 < (drawn["colour"] == "red").mean() < 0.65  # as often as in fit
    assert abs(drawn["weight"].std() / frame["weight"].std() - 1) < 0.25


@pytest.mark.parametrize("model", ["means", "auto"])
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_columns_in_another_order_are_refused_as_scikit_learn_does(kind: str, model: str) -> None:
    frame = pd.DataFrame(
        {
            "size": [1.0, 2.0, np.nan] * 4,
            "colour": ["red", "blue", None] * 4,
            "age": [5.0, 6, 7] * 4,
        }
    )
    given, other = frame, frame[["colour", "size", "age"]]
    if kind == "polars":
        given, other = (pl.from_pandas(each) for each in (given, other))
    fitted = DMFImputer(model=model).fit(given)
    for wrong in (other, given[["size", "colour"]]):
        with pytest.raises(ValueError, match="names"):
            fitted.transform(wrong)


def wide_mixed_frame(
    n_rows: int, *, n_numbers: int, n_texts: int, n_categories: int
) -> pd.DataFrame:
    """A frame whose numbers and categories follow from three factors of a row."""
    random = np.random.default_rng(0)
    factors = random.normal(size=(n_rows, 3))
    numbers = factors @ random.normal(size=(3, n_numbers)) + 0.5 * random.normal(
        size=(n_rows, n_numbers)
    )
    frame = pd.DataFrame({f"number {at}": column for at, column in enumerate(numbers.T)})
    for at in range(n_texts):
        likely = 2 * factors @ random.normal(size=(3, n_categories)) + random.gumbel(
            size=(n_rows, n_categories)
        )
        frame[f"text {at}"] = np.array(
            [f"category {best}" for best in likely.argmax(axis=1)], dtype=object
        )
    return frame


@pytest.mark.slow
def test_many_categories_leave_the_default_as_good_as_its_own_gaussian() -> None:
    whole = wide_mixed_frame(300, n_numbers=10, n_texts=12, n_categories=20)
    hidden = np.random.default_rng(1).random(whole.shape) < 0.2
    table = whole.mask(hidden)
    errors = {}
    for model in ("gaussian", "auto"):
        fitted = DMFImputer(model, random_state=0).fit(table)
        completed = fitted.transform(table)
        filled, truth = (each.iloc[:, :10].to_numpy(dtype=float) for each in (completed, whole))
        errors[model] = np.sqrt(
            np.mean(((filled - truth) / truth.std(axis=0))[hidden[:, :10]] ** 2)
        )
    assert fitted.weights_["gaussian"] > 0.5
    assert errors["auto"] < 1.01 * errors["gaussian"]


@pytest.mark.slow
def test_a_category_counts_as_one_cell_among_hidden_ones() -> None:
    """Numbers that follow from each other; categories, of many columns each, that follow from
    nothing."""
    whole = wide_mixed_frame(200, n_numbers=8, n_texts=0, n_categories=0)
    for at in range(2):
        whole[f"text {at}"] = np.random.default_rng(at).permutation(
            [f"category {k % 20}" for k in range(200)]
        )
    table = whole.mask(np.random.default_rng(1).random(whole.shape) < 0.2)
    weights = DMFImputer(random_state=0).fit(table).weights_
    assert weights.get("column-means", 0.0) < 0.25


@pytest.mark.parametrize("model", ["gaussian", "means", "als"])
def test_a_row_of_weight_two_counts_as_the_row_twice(model: str, table: Array) -> None:
    twice = np.arange(len(table)) % 3 == 0
    weighted = DMFImputer(model, random_state=0).fit(table, sample_weight=np.where(twice, 2.0, 1.0))
    repeated = DMFImputer(model, random_state=0).fit(np.vstack([table, table[twice]]))
    plain = DMFImputer(model, random_state=0).fit(table)
    spread = np.nanstd(table, axis=0)
    gap, moved = (
        np.abs(weighted.transform(table) - other.transform(table)) / spread
        for other in (repeated, plain)
    )
    assert (
        gap.max() < 0.05 * moved.max()
        if model in ("gaussian", "means")
        else gap.mean() < moved.mean()
    )


@pytest.mark.parametrize("model", ["auto", "als"])
@pytest.mark.slow
def test_a_row_of_weight_zero_is_absent(model: str, table: Array) -> None:
    weights = np.where(np.arange(len(table)) % 4 == 0, 0.0, 1.0)
    absent = DMFImputer(model, random_state=0).fit(table[weights > 0])
    for given in (table, pd.DataFrame(table)):
        found = DMFImputer(model, random_state=0).fit(given, sample_weight=weights)
        np.testing.assert_array_equal(np.asarray(found.transform(given)), absent.transform(table))
    np.testing.assert_array_equal(*(next(each.impute_many(table, m=1)) for each in (absent, found)))


@pytest.mark.parametrize(
    "weights",
    [[1.0, 2.0], [-1.0] * 40, [np.nan] * 40, np.ones((40, 2)), ["a"] * 40, [0.0] * 40],
    ids=["few", "negative", "nan", "table", "text", "zero"],
)
def test_weights_that_are_none_are_refused(weights: Any, table: Array) -> None:
    with pytest.raises(BadEntries, match="weight"):
        DMFImputer("means").fit(table, sample_weight=weights)


@pytest.mark.slow
def test_draws_count_weights(table: Array) -> None:
    heavy = np.where(np.nan_to_num(table[:, 0]) > np.nanmedian(table[:, 0]), 20.0, 1.0)
    empty = np.full((200, 6), np.nan)
    drawn = [
        next(DMFImputer(random_state=0).fit(table, sample_weight=weights).impute_many(empty, m=1))[
            :, 0
        ].mean()
        for weights in (heavy, None)
    ]
    assert drawn[0] > drawn[1]


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_imputed_values_keep_their_constraints(kind: str) -> None:
    random = np.random.default_rng(0)
    size = random.normal(size=(150, 1))
    weight, height, children = (
        70 + 12 * size[:, 0],
        1.7 + 0.1 * size[:, 0],
        np.rint(np.abs(2 * random.normal(size=150))),
    )
    frame = pd.DataFrame(
        {"weight": weight, "height": height, "ratio": weight / height**2, "children": children}
    )
    gaps = frame.mask(random.random(frame.shape) < 0.3)
    names = (
        dict(zip(frame.columns, range(4), strict=True))
        if kind == "array"
        else {name: name for name in frame}
    )
    ratio = names["ratio"], names["weight"], names["height"]
    given: Any = {"pandas": gaps, "polars": pl.from_pandas(gaps), "array": gaps.to_numpy()}[kind]

    def take(table: Any, name: Any) -> Array:
        return np.asarray(table[:, name] if kind == "array" else table[name], dtype=np.float64)

    constraints = {
        ratio[0]: lambda table: take(table, ratio[1]) / take(table, ratio[2]) ** 2,
        names["children"]: [(0, 3), "whole"],
    }
    imputer = DMFImputer("gaussian", constraints=constraints, random_state=0).fit(given)
    for completed in (imputer.transform(given), next(imputer.impute_many(given, 1))):
        missing = gaps.isna().to_numpy()
        found = take(completed, names["children"])
        assert set(found[missing[:, 3]]) <= {0.0, 1.0, 2.0, 3.0}
        expected = take(completed, names["weight"]) / take(completed, names["height"]) ** 2
        np.testing.assert_allclose(
            take(completed, ratio[0])[missing[:, 2]], expected[missing[:, 2]]
        )
        np.testing.assert_array_equal(
            take(completed, ratio[0])[~missing[:, 2]], gaps["ratio"].to_numpy()[~missing[:, 2]]
        )
    for wrong in ({"bmi": (0, 1)}, {names["weight"]: (2, 1)}, {names["weight"]: "even"}):
        with pytest.raises(BadSetting, match="constraint"):
            DMFImputer("gaussian", constraints=wrong).fit(given)


def test_the_best_effort_grows_larger_forests() -> None:
    random = np.random.default_rng(0)
    table = np.column_stack([random.normal(size=(60, 2)), random.normal(size=60)])
    table[:, 2] = np.sign(table[:, 0]) * table[:, 1]
    table[random.random(table.shape) < 0.2] = np.nan
    forests = [
        DMFImputer("trees", effort=effort, random_state=0).fit(table).model_.forests[0].forest
        for effort in ("normal", "best")
    ]
    assert len(forests[1]._trees) == 5 * len(forests[0]._trees)
