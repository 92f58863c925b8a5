"""What MovieLens says of its users and films beside the ratings: sex, age, occupation, post code;
genres and year.

`python benchmarks/movielens_features.py FOLDER` writes `ml-1m-features.npz` and
`ml-100k-features.npz` there, for a machine without polars; `np.load` reads them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from deepmf.datasets import fetch_file
from deepmf.errors import BadSetting
from deepmf.files import write_atomically

if TYPE_CHECKING:  # only frames need polars
    import polars as pl

NAMES = ("ml-100k", "ml-1m")

# What the codes of ml-1m stand for, from its publisher's README; those of ml-100k are words
# already.
OCCUPATIONS = (
    *(
        "other",
        "academic/educator",
        "artist",
        "clerical/admin",
        "college/grad student",
        "customer service",
    ),
    *(
        "doctor/health care",
        "executive/managerial",
        "farmer",
        "homemaker",
        "K-12 student",
        "lawyer",
        "programmer",
    ),
    *(
        "retired",
        "sales/marketing",
        "scientist",
        "self-employed",
        "technician/engineer",
        "tradesman/craftsman",
    ),
    *("unemployed", "writer"),
)

_YEAR = re.compile(r"\((\d{4})\)")
# of the flags behind the title, the dates and the address of a film of ml-100k; 5 is "unknown"
_FIRST_GENRE = 6


def user_features(name: str) -> pl.DataFrame:
    """Return a line for each user: user, sex (F or M), age in years, occupation, post_code.

    The ages of ml-1m are the lower ends of ranges: 1 (under 18), 18, 25, 35, 45, 50, 56 (and
    above).
    """
    import polars as pl

    kinds: dict[str, Any] = {
        "user": pl.Int64,
        "sex": pl.String,
        "age": pl.Int64,
        "occupation": pl.String,
        "post_code": pl.String,
    }
    return pl.DataFrame(_read_users(name), schema=kinds, orient="row")


def film_features(name: str) -> pl.DataFrame:
    """Return a line for each film: film, genres (a list of names, empty where unknown), year (null
    where unknown)."""
    import polars as pl

    kinds: dict[str, Any] = {"film": pl.Int64, "genres": pl.List(pl.String), "year": pl.Int64}
    return pl.DataFrame(_read_films(name), schema=kinds, orient="row")


def feature_arrays(name: str) -> dict[str, npt.NDArray[Any]]:
    """Return both tables as arrays by column; genres are joined by |, an unknown year is NaN."""
    users, sexes, ages, occupations, codes = zip(*_read_users(name), strict=True)
    films, genres, years = zip(*_read_films(name), strict=True)
    return {
        "user": np.array(users),
        "age": np.array(ages),
        "sex": np.array(sexes),
        "occupation": np.array(occupations),
        "post_code": np.array(codes),
        "film": np.array(films),
        "genres": np.array(["|".join(each) for each in genres]),
        "year": np.array([np.nan if year is None else year for year in years], dtype=np.float64),
    }


def export(name: str, folder: Path) -> Path:
    """Write both tables as one `.npz` of arrays, and return its path."""
    arrays: dict[str, Any] = feature_arrays(name)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    path = folder / f"{name}-features.npz"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, write)
    return path


def _read_users(name: str) -> list[tuple[int, str, int, str, str]]:
    _check(name)
    if name == "ml-1m":
        lines = [line.split("::") for line in _lines(name, "users.dat")]
        return [
            (int(u), sex, int(age), OCCUPATIONS[int(job)], code) for u, sex, age, job, code in lines
        ]
    lines = [line.split("|") for line in _lines(name, "u.user")]
    return [(int(u), sex, int(age), job, code) for u, age, sex, job, code in lines]


def _read_films(name: str) -> list[tuple[int, list[str], int | None]]:
    _check(name)
    if name == "ml-1m":
        lines = [line.split("::") for line in _lines(name, "movies.dat")]
        return [(int(film), genres.split("|"), _year(title)) for film, title, genres in lines]
    names = [line.split("|")[0] for line in _lines(name, "u.genre") if "|" in line][1:]
    lines = [line.split("|") for line in _lines(name, "u.item")]
    return [(int(line[0]), _flagged(line[_FIRST_GENRE:], names), _year(line[1])) for line in lines]


def _lines(name: str, file: str) -> list[str]:
    text = fetch_file(name, f"{name}/{file}").read_text(encoding="latin-1")
    return [line for line in text.split("\n") if line]


def _year(title: str) -> int | None:
    found = _YEAR.findall(title)
    return int(found[-1]) if found else None


def _flagged(flags: list[str], names: list[str]) -> list[str]:
    return [name for flag, name in zip(flags, names, strict=True) if flag == "1"]


def _check(name: str) -> None:
    if name not in NAMES:
        raise BadSetting(f"there are no features of {name!r} here; {' and '.join(NAMES)} have some")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give the folder to write to: python benchmarks/movielens_features.py FOLDER")
    for each in NAMES:
        print(export(each, Path(sys.argv[1])))
