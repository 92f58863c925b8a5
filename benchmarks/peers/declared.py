"""The peers: what is installed for each, how it is run, with which settings, and where these come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OURS = "deepmf"  # the environment that is there already


@dataclass(frozen=True)
class Environment:
    """A virtual environment of a library: what pip is told to install into it, step by step."""

    name: str
    requirements: tuple[str, ...]
    before: tuple[str, ...] = ()  # what must be there before: a build that has no isolation of its own
    options: tuple[str, ...] = ()  # of pip, for the requirements


@dataclass(frozen=True)
class Peer:
    """One way to run a library: a point of the pictures, a row of the tables.

    Those of one `family` differ in how long they take, and make one curve. `tasks` holds the kinds of tasks that it is
    run on; `seconds` is how long one run may take.
    """

    name: str
    title: str
    family: str
    environment: str
    runner: str
    settings: dict[str, Any]
    tasks: tuple[str, ...]
    source: str  # where the settings come from
    seconds: int = 600
    seeded: str = ""  # the setting that takes the seed of the split


@dataclass(frozen=True)
class Absent:
    """A library that is not run, and why."""

    title: str
    reason: str


ENVIRONMENTS = (
    Environment("myfm", ("myfm==0.4.0", "setuptools<80")),
    Environment("surprise", ("scikit-surprise==1.1.5",)),
    Environment(
        "cmfrec",
        ("cmfrec==3.5.1.post14", "pandas==2.3.3", "threadpoolctl==3.6.0"),
        before=("cython==3.3.1", "setuptools<80", "wheel", "numpy==2.4.6", "scipy==1.17.1", "findblas==0.1.26.post1"),
        options=("--no-build-isolation",),
    ),
    Environment("lenskit", ("lenskit==2025.8.1",)),
    Environment(
        "lightfm",
        ("lightfm==1.17",),
        before=("setuptools<80", "wheel", "numpy==2.4.6", "scipy==1.17.1"),
        options=("--no-build-isolation",),
    ),
    Environment("sklearn", ("scikit-learn==1.9.1",)),
    Environment("miceforest", ("miceforest==6.0.5", "lightgbm==4.6.0", "pandas==2.3.3")),
)

ABSENT = (
    Absent("implicit", "its ALS is for implicit feedback: it ranks, and has no prediction of a value to compare"),
)

_DEFAULTS = "the library's defaults"
_KNOWN, _NEW, _FEATURES, _BOTH = ("known",), ("new",), ("features",), ("known", "new")


def _surprise(name: str, title: str, algorithm: str, source: str = _DEFAULTS, **settings: Any) -> Peer:
    settings = {"algorithm": algorithm} | settings
    seeded = "" if algorithm == "KNNBaseline" else "random_state"
    return Peer(
        name, title, f"Surprise {algorithm}", "surprise", "surprise_runner", settings, _KNOWN, source, 600, seeded
    )


def _myfm(name: str, title: str, family: str, tasks: tuple[str, ...], source: str, **settings: Any) -> Peer:
    return Peer(name, title, family, "myfm", "myfm_runner", settings, tasks, source, seconds=1800, seeded="seed")


def _cmfrec(name: str, title: str, tasks: tuple[str, ...], source: str, **settings: Any) -> Peer:
    family = "cmfrec, features" if settings.get("features") else "cmfrec"
    return Peer(name, title, family, "cmfrec", "cmfrec_runner", settings, tasks, source, seeded="random_state")


def _ours(name: str, title: str, family: str, tasks: tuple[str, ...], **settings: Any) -> Peer:
    source = "its own choice for the matrix and the machine"
    return Peer(name, title, family, OURS, "deepmf_runner", settings, tasks, source, 1800, "seed")


def _imputer(name: str, title: str, environment: str, **settings: Any) -> Peer:
    return Peer(name, title, title, environment, "imputer_runner", settings, ("table",), _DEFAULTS)


_NOTEBOOK = "the authors' notebook on MovieLens-1M"
_SCRIPT = "the authors' script for MovieLens-1M, 200 iterations instead of 512"

PEERS: tuple[Peer, ...] = (
    _ours("means", "deepmf, Means", "deepmf Means", _BOTH, model="Means"),
    _ours("als", "deepmf, ALS", "deepmf ALS", _BOTH, model="ALS"),
    _ours(
        "ordinal-quick", "deepmf, quick", "deepmf OrdinalDMF", _BOTH, model="OrdinalDMF", effort="quick", device="cpu"
    ),
    _ours("ordinal", "deepmf, normal", "deepmf OrdinalDMF", _BOTH, model="OrdinalDMF", device="cpu"),
    _ours(
        "means-features", "deepmf, Means, features", "deepmf Means, features", _FEATURES, model="Means", features=True
    ),
    _ours("als-features", "deepmf, ALS, features", "deepmf ALS, features", _FEATURES, model="ALS", features=True),
    _ours(
        *("ordinal-quick-features", "deepmf, quick, features", "deepmf OrdinalDMF, features", _FEATURES),
        **{"model": "OrdinalDMF", "effort": "quick", "device": "cpu", "features": True},
    ),
    _ours(
        *("ordinal-features", "deepmf, normal, features", "deepmf OrdinalDMF, features", _FEATURES),
        **{"model": "OrdinalDMF", "device": "cpu", "features": True},
    ),
    _surprise("surprise-svd-5", "Surprise, SVD, 5 epochs", "SVD", "5 epochs instead of 20", n_epochs=5),
    _surprise("surprise-svd", "Surprise, SVD", "SVD"),
    _surprise(
        *("surprise-svd-50", "Surprise, SVD, 50 factors, 40 epochs", "SVD", "chosen on validation entries"),
        **{"n_factors": 50, "n_epochs": 40, "reg_all": 0.05},
    ),
    _surprise("surprise-svdpp", "Surprise, SVD++", "SVDpp"),
    _surprise("surprise-knn", "Surprise, KNNBaseline", "KNNBaseline", verbose=False),
    _cmfrec(
        "cmfrec-10", "cmfrec, lambda 10", _BOTH, "the library's defaults, and its authors' notebook", k=40, lambda_=10.0
    ),
    _cmfrec("cmfrec-30", "cmfrec, lambda 30", _BOTH, "its documentation, for MovieLens-10M", k=40, lambda_=30.0),
    _cmfrec(
        *("cmfrec-features-10", "cmfrec, features, lambda 10", _FEATURES, "weights of 6 chosen on validation entries"),
        **{"k": 40, "lambda_": 10.0, "w_user": 10.0, "w_item": 10.0, "features": True},
    ),
    _cmfrec(
        *("cmfrec-features-30", "cmfrec, features, lambda 30", _FEATURES, "weights of 6 chosen on validation entries"),
        **{"k": 40, "lambda_": 30.0, "w_user": 10.0, "w_item": 10.0, "features": True},
    ),
    _myfm("myfm-10", "myFM, rank 10, 60 iterations", "myFM", _KNOWN, _NOTEBOOK, rank=10, iterations=60),
    _myfm("myfm-32", "myFM, rank 32, 200 iterations", "myFM", _KNOWN, _SCRIPT, rank=32, iterations=200),
    _myfm(
        *("myfm-probit", "myFM, ordered probit, rank 32, 200 iterations", "myFM, ordered probit", _KNOWN, _SCRIPT),
        **{"rank": 32, "iterations": 200, "ordered": True},
    ),
    _myfm(
        *("myfm-svdpp-10", "myFM, SVD++ flipped, rank 10, 100 iterations", "myFM, SVD++ flipped", _KNOWN, _NOTEBOOK),
        **{"rank": 10, "iterations": 100, "kept": 95, "implicit": True},
    ),
    _myfm(
        *("myfm-svdpp", "myFM, SVD++ flipped, rank 32, 200 iterations", "myFM, SVD++ flipped", _KNOWN, _SCRIPT),
        **{"rank": 32, "iterations": 200, "implicit": True},
    ),
    _myfm(
        *("myfm-svdpp-probit", "myFM, SVD++ flipped, ordered probit, rank 32, 200 iterations"),
        *("myFM, SVD++ flipped, ordered probit", _KNOWN, _SCRIPT),
        **{"rank": 32, "iterations": 200, "implicit": True, "ordered": True},
    ),
    _myfm(
        *("myfm-new", "myFM, ids and entries", "myFM, ids and entries", _NEW, _NOTEBOOK),
        **{"rank": 10, "iterations": 100, "implicit": True},
    ),
    _myfm(
        *("myfm-features", "myFM, ids and features", "myFM, ids and features", _FEATURES, _NOTEBOOK),
        **{"rank": 10, "iterations": 100, "features": True},
    ),
    _myfm(
        *(
            "myfm-new-features",
            "myFM, ids, entries and features",
            "myFM, ids, entries and features",
            _FEATURES,
            _NOTEBOOK,
        ),
        **{"rank": 10, "iterations": 100, "implicit": True, "features": True},
    ),
    _myfm(
        *("myfm-refit", "myFM, ids, sampled anew", "myFM, sampled anew", _NEW, _NOTEBOOK),
        **{"rank": 10, "iterations": 100, "refit": True},
    ),
    _myfm(
        *("myfm-refit-features", "myFM, ids and features, sampled anew", "myFM, features, sampled anew", _FEATURES),
        *(_NOTEBOOK,),
        **{"rank": 10, "iterations": 100, "features": True, "refit": True},
    ),
    Peer(
        *("lenskit-als", "LensKit, biased MF", "LensKit biased MF", "lenskit", "lenskit_runner"),
        *({"scorer": "als"}, _BOTH, _DEFAULTS, 600, "seed"),
    ),
    Peer(
        *("lenskit-flexmf", "LensKit, FlexMF", "LensKit FlexMF", "lenskit", "lenskit_runner"),
        *({"scorer": "flexmf"}, _KNOWN, _DEFAULTS, 600, "seed"),
    ),
    Peer(
        *("lightfm-features", "LightFM, features", "LightFM, features", "lightfm", "lightfm_runner"),
        *(
            {"components": 32, "epochs": 20},
            _FEATURES,
            "32 components, 20 epochs; it has no loss for values",
            600,
            "seed",
        ),
    ),
    _imputer("dmf-imputer", "deepmf, DMFImputer", OURS, imputer="DMFImputer", model="auto"),
    _imputer("simple-imputer", "scikit-learn, SimpleImputer", "sklearn", imputer="SimpleImputer"),
    _imputer("knn-imputer", "scikit-learn, KNNImputer", "sklearn", imputer="KNNImputer"),
    _imputer("iterative-imputer", "scikit-learn, IterativeImputer", "sklearn", imputer="IterativeImputer"),
    Peer(
        *("miceforest", "miceforest", "miceforest", "miceforest", "miceforest_runner"),
        *({"datasets": 5, "iterations": 5}, ("table",), "5 iterations as in its README; the mean of 5 tables", 600),
    ),
)
