"""Features of MovieLens: both publishers' layouts, read from files that are written here and hold
no one's data."""

from pathlib import Path

import numpy as np
import pytest
from movielens_features import export, film_features, user_features

from deepmf.errors import BadSetting

FILES = {
    "ml-1m/users.dat": "1::F::1::10::48067\n2::M::56::16::70072-1234\n",
    "ml-1m/movies.dat": "1::One (1995)::Animation|Comedy\n7::1941 (1979)::War\n",
    "ml-100k/u.user": "1|24|M|technician|85711\n2|53|F|other|T8H1N\n",
    "ml-100k/u.genre": "unknown|0\nAction|1\nComedy|2\n\n",
    "ml-100k/u.item": "1|One (1995) (V)|01-Jan-1995||http|0|1|1\n267|unknown||||1|0|0\n",
}


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPMF_DATA", str(tmp_path))
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="latin-1")


def test_users_of_both_sets_have_the_same_columns() -> None:
    assert user_features("ml-1m").rows() == [
        (1, "F", 1, "K-12 student", "48067"),
        (2, "M", 56, "self-employed", "70072-1234"),
    ]
    assert user_features("ml-100k").rows() == [
        (1, "M", 24, "technician", "85711"),
        (2, "F", 53, "other", "T8H1N"),
    ]
    assert user_features("ml-1m").schema == user_features("ml-100k").schema


def test_films_have_genres_and_the_year_of_their_title() -> None:
    assert film_features("ml-1m").rows() == [(1, ["Animation", "Comedy"], 1995), (7, ["War"], 1979)]
    assert film_features("ml-100k").rows() == [(1, ["Action", "Comedy"], 1995), (267, [], None)]


def test_the_export_needs_no_polars_to_read(tmp_path: Path) -> None:
    with np.load(export("ml-100k", tmp_path / "out")) as arrays:
        assert arrays["genres"].tolist() == ["Action|Comedy", ""]
        np.testing.assert_array_equal(arrays["year"], [1995, np.nan])
        assert arrays["sex"].tolist() == ["M", "F"]


def test_other_sets_have_none() -> None:
    with pytest.raises(BadSetting, match="'ml-10m'"):
        user_features("ml-10m")
