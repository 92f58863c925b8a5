"""Features of rows and columns: what every model that takes them does, and what the others
refuse."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.models.described import (
    COLUMNS,
    N_COLUMNS,
    N_ROWS,
    ROWS,
    TRUTH,
    column_features,
    column_values,
    matrix,
    row_features,
    row_values,
)
from tests.models.lies import small_model

from deepmf.errors import (
    BadEntries,
    BadFeatures,
    BadModelFile,
    NothingObserved,
    TrainingInterrupted,
)
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.loading import load
from deepmf.models.registry import MODELS, model_class
from deepmf.training.history import EpochRecord, History

_BRANCHES: dict[str, Any] = {
    "hidden_sizes": (32,),
    "latent_size": 8,
    "dropout": 0.0,
    "epochs": 40,
    "block_rows": 20,
    "block_columns": 15,
    "device": "cpu",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "means": {},
    "als": {"latent_size": 2, "epochs": 10},
    "bayesian": {"latent_size": 2, "epochs": 40, "samples": 8, "device": "cpu"},
    "dmf-o": _BRANCHES | {"learning_rate": 0.03, "mask_rate": 0.3, "views": 4},
}
TAKERS = [name for name in MODELS if model_class(name).takes_features]
every_taker = pytest.mark.parametrize("name", TAKERS)
# What fits several times takes seconds for networks: one of them is quick enough.
_SLOW = ("dmf-o",)
every_learner = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOW))
        for name in TAKERS
        if name != "means"
    ],
)
HISTORY = ["column 3", "column 1", "column 17"], [2.0, 5.0, 4.0]
RATERS = ["row 8", "row 2", "row 31"], [2.0, 5.0, 4.0]
_KNOWN: dict[tuple[str, str], Model] = {}


def fitted(name: str, which: str = "both", **changes: Any) -> Model:
    """A model with features of rows, of columns, of both or of neither; learned once."""
    key = name, which
    if key not in _KNOWN or changes:
        features: dict[str, Any] = {}
        if which in ("rows", "both"):
            features["row_features"] = row_features()
        if which in ("columns", "both"):
            features["column_features"] = column_features()
        model = model_class(name)(**SETTINGS[name] | changes).fit(matrix(), **features)
        if changes:
            return model
        _KNOWN[key] = model
    return _KNOWN[key]


def scores(model: Model, rows: Any = None, columns: Any = None) -> npt.NDArray[Any]:
    """Return the scores (rows, columns) of some labels, or of all."""
    store = model.entries_
    at = (
        np.arange(len(labels)) if given is None else labels.positions(given)
        for labels, given in ((store.rows, rows), (store.columns, columns))
    )
    return model.predictor_.readout.units(model.predictor_.score_block(*at))


def latent(model: Model, axis: str, label: str) -> npt.NDArray[Any]:
    """Return the latent of a row or column: a certain model may predict the same levels by
    others."""
    predictor, store = model.predictor_, model.entries_
    latents, labels = (
        (predictor.rows, store.rows) if axis == "row" else (predictor.columns, store.columns)
    )
    return latents.whole()[labels.positions([label])]


def one(label: str, values: dict[str, Any]) -> Features:
    return Features.from_columns([label], {name: [value] for name, value in values.items()})


def test_the_models_that_take_features() -> None:
    assert set(TAKERS) == set(SETTINGS)


@pytest.mark.slow
@every_taker
@pytest.mark.parametrize("axis", ["row", "column"])
def test_they_lower_the_error_of_what_has_no_entries(name: str, axis: str) -> None:
    rows, columns = (
        (ROWS[N_ROWS:], COLUMNS[:N_COLUMNS])
        if axis == "row"
        else (ROWS[:N_ROWS], COLUMNS[N_COLUMNS:])
    )
    truth = TRUTH[N_ROWS:, :N_COLUMNS] if axis == "row" else TRUTH[:N_ROWS, N_COLUMNS:]
    pairs = np.repeat(rows, len(columns)), np.tile(columns, len(rows))
    error = rmse_error(fitted(name).predict(*pairs), truth.ravel())
    plain = fitted(name, "neither").predict(*pairs, unknown="fallback")
    assert error < 0.8 * rmse_error(plain, truth.ravel())


@pytest.mark.slow
@every_taker
@pytest.mark.parametrize("which", ["rows", "columns"])
def test_features_of_one_axis(name: str, which: str) -> None:
    model = fitted(name, which)
    assert (model.entries_.row_features is None) == (which == "columns")
    assert (model.entries_.column_features is None) == (which == "rows")
    assert model.row_labels_.size == N_ROWS + 10 * (which == "rows")
    assert model.column_labels_.size == N_COLUMNS + 10 * (which == "columns")
    assert np.isfinite(model.complete()).all()


@pytest.mark.slow
@every_taker
def test_features_without_entries_and_entries_without_features(name: str) -> None:
    model = fitted(name)
    assert model.entries_.train.shape == (N_ROWS, N_COLUMNS)
    assert sorted(model.row_labels_) == sorted(ROWS) and sorted(model.column_labels_) == sorted(
        COLUMNS
    )
    assert model.areas(
        ["row 1", "row 45", "row 45"], ["column 35", "column 1", "column 35"]
    ).tolist() == ["III", "II", "IV"]
    assert model.row_counts(["row 45"]).tolist() == [0]
    known = model.entries_.row_entries(
        model.entries_.rows.positions(["row 37", "row 38", "row 45"])
    ).features
    assert known is not None and known.are_known.tolist() == [True, False, True]
    assert np.isfinite(scores(model)).all()
    assert model.recommend("row 45", n=3).labels.size == 3


@pytest.mark.slow
@every_taker
def test_a_row_of_an_extension_is_the_row_that_is_folded_in(name: str) -> None:
    model, wanted = fitted(name), COLUMNS[:N_COLUMNS]
    entries = ObservedMatrix.from_entries(["new"] * 3, *HISTORY, model.scale_)
    both = model.extend(entries, row_features=one("new", row_values(3)))
    alone = model.extend(row_features=one("new", row_values(3)))
    bare = model.extend(entries)
    cases: list[tuple[Model, Any, Any]] = [
        (both, HISTORY, row_values(3)),
        (alone, ([], []), row_values(3)),
        (bare, HISTORY, None),
    ]
    for extended, history, features in cases:
        folded = model.fold_in(*history, features=features)
        np.testing.assert_array_equal(
            folded.predict(wanted), extended.predict(["new"] * len(wanted), wanted)
        )
    found = [scores(each, ["new"], wanted) for each in (both, alone, bare)]
    assert not np.allclose(found[0], found[1])
    assert not np.allclose(
        latent(both, "row", "new"), latent(bare, "row", "new"), rtol=1e-3, atol=1e-3
    )
    together = model.fold_in_many(
        [HISTORY, ([], []), HISTORY], features=[row_values(3), row_values(3), None]
    ).predictor.score_block(np.arange(3), np.arange(N_COLUMNS))
    np.testing.assert_allclose(
        model.predictor_.readout.units(together), np.concatenate(found), atol=1e-4
    )
    np.testing.assert_array_equal(scores(both, ROWS), scores(model, ROWS))


@pytest.mark.slow
@every_taker
def test_a_column_of_an_extension_is_the_column_that_is_folded_in(name: str) -> None:
    model, wanted = fitted(name), ROWS[:N_ROWS]
    entries = ObservedMatrix.from_entries(RATERS[0], ["new"] * 3, RATERS[1], model.scale_)
    cases: list[tuple[Model, Any]] = [
        (model.extend(entries, column_features=one("new", column_values(3))), RATERS),
        (model.extend(column_features=one("new", column_values(3))), ([], [])),
    ]
    for extended, history in cases:
        folded = model.fold_in_column(*history, features=column_values(3))
        np.testing.assert_array_equal(
            folded.predict(wanted), extended.predict(wanted, ["new"] * len(wanted))
        )


@every_taker
@pytest.mark.parametrize("axis", ["row", "column"])
def test_new_features_take_the_place_of_the_old(name: str, axis: str) -> None:
    model = fitted(name)
    of, said = (row_values, "group") if axis == "row" else (column_values, "genres")
    values = of(7)
    other = next(of(at) for at in range(30) if of(at)[said] != values[said])
    asked, latents = {f"{axis}s": [f"{axis} 7"]}, partial(latent, axis=axis, label=f"{axis} 7")
    changed = model.extend(**{f"{axis}_features": one(f"{axis} 7", other)})
    assert not np.allclose(latents(changed), latents(model), rtol=1e-3, atol=1e-3)
    back = changed.extend(**{f"{axis}_features": one(f"{axis} 7", values)})
    np.testing.assert_allclose(scores(back, **asked), scores(model, **asked), atol=5e-3)
    assert back.row_labels_.tolist() == model.row_labels_.tolist()


@pytest.mark.slow
@every_learner
def test_the_order_of_labels_is_irrelevant(name: str) -> None:
    dice = np.random.default_rng(5)
    model = model_class(name)(**SETTINGS[name]).fit(
        matrix(),
        row_features=row_features(dice.permutation(N_ROWS + 8)),
        column_features=column_features(dice.permutation(N_COLUMNS + 8)),
    )
    np.testing.assert_allclose(
        scores(model, ROWS, COLUMNS), scores(fitted(name), ROWS, COLUMNS), atol=1e-3
    )


@every_taker
def test_what_is_forgotten_has_no_features(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    entries = ObservedMatrix.from_entries(["new"] * 3, *HISTORY, model.scale_)
    more = model.extend(
        entries, row_features=one("new", row_values(3)), column_features=one("n", column_values(3))
    )
    back = more.forget(rows=["new"], columns=["n"])
    for each, path in ((model, tmp_path / "model"), (back, tmp_path / "back")):
        each.save(path)
    assert (tmp_path / "model").read_bytes() == (tmp_path / "back").read_bytes()
    without = model.forget(rows=["row 45"])
    assert "row 45" not in without.row_labels_
    kept = [label for label in ROWS if label != "row 45"]
    np.testing.assert_array_equal(scores(without, kept), scores(model, kept))
    gone = model.forget(rows=["row 3", "row 5"], columns=["column 3", "column 5"])
    for found in (scores(gone, ["row 3", "row 5"]), scores(gone, None, ["column 3", "column 5"]).T):
        np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    features = gone.entries_.row_entries(gone.entries_.rows.positions(["row 3", "row 4"])).features
    assert features is not None and features.are_known.tolist() == [False, True]
    with pytest.raises(BadEntries, match="'row 3'"):
        gone.forget(rows=["row 3"])


@every_taker
def test_features_alone_are_forgotten(name: str) -> None:
    model = fitted(name)
    entries = ObservedMatrix.from_entries(["new"] * 3, *HISTORY, model.scale_)
    more = model.extend(entries, row_features=one("new", row_values(3)))
    bare = more.forget(row_features=["new"])
    np.testing.assert_array_equal(scores(bare), scores(model.extend(entries)))
    trained = model.forget(row_features=["row 3"], column_features=["column 4"])
    assert trained.entries_.n_entries == model.entries_.n_entries
    assert not np.allclose(scores(trained, ["row 3"]), scores(model, ["row 3"]), atol=1e-4)
    rows = [label for label in ROWS if label != "row 3"]
    columns = [label for label in COLUMNS if label != "column 4"]
    np.testing.assert_array_equal(scores(trained, rows, columns), scores(model, rows, columns))
    # A trained row that had no features is again as it was trained.
    late = model.extend(row_features=one("row 39", row_values(3))).forget(row_features=["row 39"])
    np.testing.assert_array_equal(scores(late), scores(model))
    with pytest.raises(BadFeatures, match="'row 39'"):
        model.forget(row_features=["row 39"])
    with pytest.raises(BadFeatures, match="'row 3'"):
        trained.forget(row_features=["row 3"])
    same = model.forget(row_features=["row 39", "nobody"], missing="ignore")
    np.testing.assert_array_equal(scores(same), scores(model))


@pytest.mark.slow
@every_taker
def test_save_and_load_agree_to_the_bit(name: str, tmp_path: Path) -> None:
    model, path = fitted(name), tmp_path / "model.safetensors"
    more = model.extend(
        ObservedMatrix.from_entries(["new"] * 3, *HISTORY, model.scale_),
        row_features=Features.from_columns(
            ["new", "row 4"], {"group": ["high", "low"], "age": [30, None]}
        ),
        column_features=one("column 8", column_values(9)),
    )
    for each in (model, more, more.forget(rows=["row 3", "row 44"], columns=["column 8"])):
        each.save(path)
        again = load(path)
        np.testing.assert_array_equal(again.complete(), each.complete())
        again.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == path.read_bytes()
        guests = [
            one.fold_in(*HISTORY, features=row_values(4)).predict(COLUMNS[:N_COLUMNS])
            for one in (each, again)
        ]
        np.testing.assert_array_equal(*guests)


@pytest.mark.slow
@every_taker
def test_explanations_count_features(name: str) -> None:
    model = fitted(name)
    found = model.explain("row 45", "column 1")  # no entries at all
    assert found.labels.size == 0
    by_name = {effect.name: effect for effect in found.features}
    assert by_name["group"].value == row_values(45)["group"]
    high, low = (
        {
            effect.name: effect.effect
            for effect in model.fold_in(features={"group": group}).explain("column 1").features
        }
        for group in ("high", "low")
    )
    assert set(high) == {"group"} and high["group"] > 0 > low["group"]
    by_column = model.explain("row 1", "column 33", n=9, axis="column").features
    assert {(each.name, each.value) for each in by_column} == {
        ("year", str(column_values(33)["year"])),
        *(("genres", genre) for genre in column_values(33)["genres"].split("|")),
    }
    sizes = [abs(each.effect) for each in by_column]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 0
    assert len(model.explain("row 1", "column 33", n=1, axis="column").features) == 1
    assert model.explain("row 39", "column 1").features == ()
    assert fitted(name, "neither").explain("row 1", "column 1").features == ()


@pytest.mark.slow
@every_learner
def test_an_interrupted_fit_continues_to_the_bit(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    features: dict[str, Any] = {
        "row_features": row_features(),
        "column_features": column_features(),
    }

    def fit(*callbacks: Any, **given: Any) -> Model:
        model = model_class(name)(**SETTINGS[name] | {"epochs": 5})
        return model.fit(
            matrix(), **given or features, checkpoint=path, checkpoint_every=1, callbacks=callbacks
        )

    def stop(record: EpochRecord, _: History) -> None:
        if record.epoch == 2:
            raise KeyboardInterrupt

    straight = fit()
    with pytest.warns(TrainingInterrupted):
        fit(stop)
    with pytest.raises(BadModelFile, match="features"):
        fit(
            row_features=Features.from_columns(ROWS, {"group": ["even", "odd"] * 25}),
            column_features=column_features(),
        )
    with pytest.raises(BadModelFile, match="another"):
        fit(column_features=column_features())
    epochs: list[int] = []
    again = fit(lambda record, _: epochs.append(record.epoch))
    assert epochs[0] > 1
    np.testing.assert_array_equal(again.complete(), straight.complete())


@pytest.mark.parametrize("name", [name for name in MODELS if name not in TAKERS])
def test_a_model_that_reads_entries_alone_says_so(name: str) -> None:
    with pytest.raises(BadFeatures, match="OrdinalDMF"):
        small_model(name).fit(matrix(), row_features=row_features())
    with pytest.raises(BadFeatures, match="alone"):
        small_model(name).fit(matrix(), column_features=column_features())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in (*_SLOW, "bayesian")))
        for name in TAKERS
    ],
)
def test_what_is_refused_changes_nothing(name: str) -> None:
    plain, model = fitted(name, "rows"), fitted(name)
    before = model.complete()
    film, person = one("new", column_values(3)), one("new", row_values(3))
    refused: list[tuple[Any, type[Exception], str]] = [
        (lambda: plain.extend(column_features=film), BadFeatures, "column"),
        (lambda: plain.fold_in_column(*RATERS, features={"year": 1}), BadFeatures, "column"),
        (lambda: model.extend(row_features=film), BadFeatures, "'genres'"),
        (lambda: model.extend(row_features={"a": 1}), BadFeatures, "dict"),
        (lambda: model.extend(None), BadEntries, "NoneType"),
        (lambda: model.fold_in(), BadEntries, "entry"),
        (lambda: plain.fold_in_column(), BadEntries, "entry"),
        (lambda: model.fold_in(features={"hair": 1}), BadFeatures, "'hair'"),
        (lambda: model.fold_in(features={"age": "old"}), BadFeatures, "'age'"),
        (lambda: model.fold_in(features={"age": float("inf")}), BadFeatures, "'age'"),
        (lambda: model.fold_in_many([HISTORY] * 2, features=[{"age": 1}]), BadFeatures, "2"),
        (lambda: model.fold_in(["column 1"], [], features={"age": 1}), BadEntries, "1 and 0"),
        (
            lambda: model_class(name)().fit(matrix(), row_features={"a": 1}),
            BadFeatures,
            "row_features",
        ),
        (lambda: model_class(name)().fit(matrix(), row_features=film), BadFeatures, "row"),
        (
            lambda: model.extend(row_features=Features.from_columns([7], {"age": [1]})),
            BadEntries,
            "ints",
        ),
        (
            lambda: model.extend(
                row_features=person, column_features=Features.from_columns(["n"], {"year": ["x"]})
            ),
            BadFeatures,
            "'year'",
        ),
    ]
    for ask, error, message in refused:
        with pytest.raises(error, match=message):
            ask()
    np.testing.assert_array_equal(model.complete(), before)


@every_taker
def test_nothing_known_is_told(name: str) -> None:
    model = fitted(name)
    empty = ObservedMatrix.from_entries(
        [], [], [], model.scale_, row_labels=["new"], column_labels=["another"]
    )
    with (
        pytest.warns(NothingObserved, match="entry"),
        pytest.warns(NothingObserved, match="1 column"),
    ):
        model.extend(empty)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.extend(
            empty,
            row_features=one("new", {"age": 30}),
            column_features=one("another", {"year": 1990}),
        )
        model.fold_in(features={"age": 30})
