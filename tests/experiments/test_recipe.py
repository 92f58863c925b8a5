"""Recipes: what a file may say, and that every shipped one is sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepmf.data.datasets import DATASETS
from deepmf.datasets import generate
from deepmf.errors import BadSetting
from deepmf.evaluation.comparison import Problem
from deepmf.experiments.recipe import (
    GENERATED,
    METRICS,
    PROTOCOLS,
    list_tables,
    make_quick,
    read_layout,
    read_table,
)
from deepmf.experiments.run import list_trials, run_trial
from deepmf.experiments.tables import list_lines, list_remarks
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.models.registry import MODELS, model_class

SHIPPED = [recipe for table in list_tables() for recipe in read_table(table)]


def test_every_shipped_recipe_is_sound() -> None:
    for recipe in SHIPPED:
        assert recipe.title and recipe.model in MODELS, recipe.name
        assert recipe.protocol in PROTOCOLS and recipe.data in DATASETS, recipe.name
        assert recipe.seeds and all(0 <= share < 1 for share in recipe.new_shares), recipe.name
        assert not (recipe.joined and recipe.refit), recipe.name
        for area, figures in recipe.published.items():
            assert area in (*AREAS, "all") and figures.keys() <= set(METRICS), recipe.name
        model_class(recipe.model)(**make_quick(recipe).settings)
        if recipe.published:
            assert "Matrix Factorization via Deep Learning" in recipe.source, recipe.name
        used = model_class(recipe.model)(**recipe.settings).settings.to_dict()
        for name, values in recipe.search.items():
            assert used[name] in values, (
                f"{recipe.name}: {name}={used[name]} is not among those that were searched"
            )


def test_every_table_has_a_layout() -> None:
    for table in list_tables():
        layout = read_layout(table)
        assert layout.title and layout.metrics and set(layout.metrics) <= set(METRICS), table


def test_the_papers_tables_are_whole() -> None:
    """The figures of the paper's own tables, typed again from the paper."""
    published = {
        recipe.title: recipe.published for recipe in read_table("table1") if recipe.published
    }
    one = {
        title: {area: cell["rmse"] for area, cell in figures.items()}
        for title, figures in published.items()
    }
    assert one["DMF"] == {"I": 0.850, "II": 0.883, "III": 0.864, "IV": 0.904}
    assert one["I-AutoRec"] == {"I": 0.841, "III": 0.856}
    assert one["U-AutoRec"] == {"I": 0.906, "II": 0.976}
    assert one["Deep U-AutoRec"] == {"I": 0.889, "II": 0.969}
    two = {
        recipe.title: tuple(recipe.published["I"].values())
        for recipe in read_table("table2")
        if recipe.published
    }
    assert two == {
        "RankK": (0.944, 0.656),
        "OptSpace": (0.940, 0.665),
        "RDMC": (0.987, 0.670),
        "ODMC": (0.937, 0.658),
        "DMF-D": (0.898, 0.625),
    }


def test_fewer_new_rows_differ_from_table_one_in_nothing_else() -> None:
    known = {recipe.row: recipe for recipe in read_table("table1")}
    for recipe in read_table("few-new", only=["dmf", "dmf-raw"]):
        other = known[recipe.row]
        assert (recipe.settings, recipe.seeds, recipe.data, recipe.joined) == (
            other.settings,
            other.seeds,
            other.data,
            other.joined,
        )
        assert recipe.new_shares == (*other.new_shares, 0.05, 0.0)


def test_recipes_of_als_make_all_sweeps() -> None:
    for recipe in (recipe for recipe in SHIPPED if (recipe.model, recipe.data) == ("als", "ml-1m")):
        settings = model_class("als")(**recipe.settings).settings.to_dict()
        assert settings["patience"] >= settings["epochs"], recipe.name


def test_a_recipe_is_read(recipes: Path) -> None:
    means, dmfd = read_table("small")
    assert (means.name, means.row, means.title) == ("small/means", "means", "shrunk means")
    assert (means.new_shares, means.seeds, means.published["I"]) == (
        (0.2, 0.1),
        (0, 1),
        {"rmse": 0.9},
    )
    assert dmfd.settings["hidden_sizes"] == (8,)
    assert read_table("small", only=["dmf-d"]) == [dmfd]


def test_a_quick_recipe_is_another(recipes: Path) -> None:
    _, dmfd = read_table("small")
    fast = make_quick(dmfd)
    assert (fast.settings["epochs"], fast.settings["latent_size"], fast.data) == (2, 4, "generated")


def test_unknown_tables_and_rows(recipes: Path) -> None:
    with pytest.raises(BadSetting, match="'small'"):
        read_table("smal")
    with pytest.raises(BadSetting, match="'means'"):
        read_table("small", only=["mean"])


def test_recipes_of_ordinal_dmf_leave_all_settings_but_the_effort_to_be_chosen() -> None:
    for recipe in (recipe for recipe in SHIPPED if recipe.model == "dmf-o"):
        effort = {"effort": "best"} if recipe.name.endswith("best") else {}
        assert recipe.settings == effort and not recipe.search, recipe.name


WHOLE = generate(400, 300, density=0.1, seed=0).matrix


# Shares of training, validation and test entries.
SHARES = {"entries": (0.75, 0.05, 0.2), "random": (0.88, 0.02, 0.1), "published": (0.75, 0.05, 0.2)}


def cells(matrix: ObservedMatrix) -> set[tuple[object, ...]]:
    return set(zip(*(part.tolist() for part in matrix.entries()), strict=True))


def problem(protocol: str, *, seed: int = 0) -> Problem:
    return PROTOCOLS[protocol](GENERATED, seed=seed, new_share=0.2)


@pytest.mark.parametrize("protocol, shares", SHARES.items())
def test_entries_are_cut_in_shares(protocol: str, shares: tuple[float, float, float]) -> None:
    found = problem(protocol)
    parts = [found.train, found.validation, found.test["I"]]
    assert [part.n_entries for part in parts] == pytest.approx(
        [share * WHOLE.n_entries for share in shares], abs=1
    )
    assert set.union(*map(cells, parts)) == cells(WHOLE)
    assert sum(len(cells(part)) for part in parts) == WHOLE.n_entries
    assert found.extension is None and list(found.test) == ["I"]
    assert found.train.shape == WHOLE.shape


def test_areas_have_new_rows_and_columns() -> None:
    found = PROTOCOLS["areas"](GENERATED, seed=0, new_share=0.1)
    assert found.train.shape == (360, 270)
    assert list(found.test) == ["I", "II", "III", "IV"]
    assert found.extension is not None


@pytest.mark.parametrize("new_share", [0.1, 0.0])
def test_areas_with_fewer_validation_entries_have_the_same_test_entries(new_share: float) -> None:
    few, plain = (
        PROTOCOLS[name](GENERATED, seed=3, new_share=new_share)
        for name in ("areas-79-1-20", "areas")
    )
    n_entries = few.train.n_entries + few.validation.n_entries + few.test["I"].n_entries
    assert few.train.n_entries == pytest.approx(0.79 * n_entries, abs=1)
    assert few.validation.n_entries == pytest.approx(0.01 * n_entries, abs=1)
    assert {area: cells(part) for area, part in few.test.items()} == {
        area: cells(part) for area, part in plain.test.items()
    }


def test_with_nothing_new_there_is_area_one_alone() -> None:
    found, plain = PROTOCOLS["areas"](GENERATED, seed=3, new_share=0.0), problem("entries", seed=3)
    assert found.extension is None and list(found.test) == ["I"]
    assert found.train.shape == WHOLE.shape
    for one, other in ((found.train, plain.train), (found.validation, plain.validation)):
        assert cells(one) == cells(other)
    assert cells(found.test["I"]) == cells(plain.test["I"])


def test_a_table_of_interactions_stands_beside_published_rows() -> None:
    (recipe,) = read_table("gowalla")
    (record,) = run_trial(list_trials(make_quick(recipe))[0])
    assert 0 < record["ndcg"] < record["recall"] < 1
    header, ours, *others = list_lines("gowalla", [record])
    assert header == ["method", "recall@20", "NDCG@20"]
    assert ours[1:] == [f"{record['recall']:.4f}", f"{record['ndcg']:.4f}"]
    assert ["LightGCN, published", "(0.1820)", "(0.1547)"] in others
    assert any("test entries" in remark for remark in list_remarks("gowalla", [record]))
