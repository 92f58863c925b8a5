"""Comparing models: each is fitted on the same splits of a matrix, and measured on the test entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from deepmf.errors import BadSetting, UserError
from deepmf.evaluation.comparison import ComparedModel, Comparison
from deepmf.evaluation.comparison_process import in_own_process, registered_name
from deepmf.evaluation.split_errors import SplitErrors, measure
from deepmf.evaluation.split_plan import SplitPlan
from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.given_entries import check_features
from deepmf.models.model import Model
from deepmf.models.registry import model_class

# How many fits are done, of how many.
Progress = Callable[[int, int | None], None]
Candidate = str | Model | type[Model]


def compare(
    models: Iterable[Candidate] | Mapping[str, Candidate],
    matrix: ObservedMatrix,
    *,
    row_features: Features | None = None,
    column_features: Features | None = None,
    folds: int = 5,
    areas: bool = False,
    new_rows: float = 0.2,
    new_columns: float = 0.2,
    validation: float = 0.05,
    seed: int = 0,
    own_processes: bool = True,
    progress: Progress | None = None,
) -> Comparison:
    """Fit several models on the same splits of a matrix and compare their errors on the test entries.

    `models` are names ("als"), classes or unfitted models with the settings wanted; a mapping gives them names of your
    own. The entries fall into `folds`, each of which is the test once; with `areas` there are as many random splits
    in which `new_rows` and `new_columns` are new. Validation entries, which choose the best epoch, are a share of all
    that is taken from what is left for training; test entries are looked at once. Features are for the models that
    read them (`Model.takes_features`); the others go without.

    Each model is fitted in a process of its own, whose peak memory is told: Python, torch and the matrix included, but
    not the memory of a GPU. With `own_processes=False`, and for models that deepmf does not know by name, it is this
    process, and no memory is told.

    >>> from deepmf.data.synthetic import generate
    >>> ratings = generate(60, 40, density=0.3, seed=0).matrix
    >>> found = compare(["means", "als"], ratings, folds=3, own_processes=False)
    >>> [model.label for model in found.ranked()]
    ['als', 'means']
    """
    candidates = _candidates(models, seed=seed)
    plan = SplitPlan(folds, areas, new_rows, new_columns, validation, seed)
    next(plan.problems(matrix))  # what cannot be split, or learned from, is refused before anything is fitted
    given = {"row_features": row_features, "column_features": column_features}
    features = {name: each for name, each in given.items() if each is not None}
    for name, labels in (("row_features", matrix.rows), ("column_features", matrix.columns)):
        if name in features:
            check_features(features[name], name)
            AxisFeatures.of(labels, features[name])
    show = progress or (lambda done, total: None)
    total, compared = folds * len(candidates), []
    for number, (label, model) in enumerate(candidates.items()):

        def show_fit(n_done: int, before: int = number * folds) -> None:
            show(before + n_done, total)

        apart = own_processes and registered_name(model) is not None
        compared.append((_compared_apart if apart else _compared_here)(label, model, matrix, plan, show_fit, features))
    return Comparison(tuple(compared), plan, matrix.describe())


def _candidates(models: Iterable[Candidate] | Mapping[str, Candidate], *, seed: int) -> dict[str, Model]:
    """Return an unfitted model for each label."""
    if isinstance(models, str | Model | type):
        raise BadSetting(f"compare takes a list of models, such as ['means', 'als']; got {models!r}")
    named = models.items() if isinstance(models, Mapping) else ((None, model) for model in models)
    found: dict[str, Model] = {}
    for name, choice in named:
        model = _model(choice, seed=seed)
        label = name or registered_name(model) or type(model).__name__
        if label in found:
            raise BadSetting(
                f"two models are called {label!r}; a mapping gives them names: {{'one': ..., 'other': ...}}"
            )
        found[label] = model
    if not found:
        raise BadSetting("there is no model to compare; give some, such as ['means', 'als']")
    return found


def _model(choice: Candidate, *, seed: int) -> Model:
    if isinstance(choice, str):
        return model_class(choice)(seed=seed)
    if isinstance(choice, type) and issubclass(choice, Model):
        return choice(seed=seed)
    if isinstance(choice, Model):
        return choice
    raise BadSetting(f"a model to compare is a name, a class or an unfitted model; got {choice!r}")


def _compared_apart(
    label: str,
    model: Model,
    matrix: ObservedMatrix,
    plan: SplitPlan,
    show: Callable[[int], None],
    features: Mapping[str, Features],
) -> ComparedModel:
    outcome = in_own_process(model, matrix, plan, show, features)
    return ComparedModel(
        label, type(model).__name__, model.own_settings, outcome.splits, outcome.peak_memory_mb, outcome.failure
    )


def _compared_here(
    label: str,
    model: Model,
    matrix: ObservedMatrix,
    plan: SplitPlan,
    show: Callable[[int], None],
    features: Mapping[str, Features],
) -> ComparedModel:
    splits: list[SplitErrors] = []
    failure = None
    try:
        for problem in plan.problems(matrix):
            splits.append(measure(model, problem, **features))
            show(len(splits))
    except UserError as error:
        splits, failure = [], str(error)
    return ComparedModel(label, type(model).__name__, model.own_settings, tuple(splits), failure=failure)
