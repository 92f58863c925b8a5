"""The catalogue of public data sets: where each is published, how it is verified and read, its licence."""

from __future__ import annotations

from dataclasses import dataclass

from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import Duplicates


@dataclass(frozen=True)
class Checksum:
    """The digest a file must have, and how far that digest itself is known to be right."""

    algorithm: str
    digest: str
    verified: str


@dataclass(frozen=True)
class RatingsFile:
    """The file inside the archive that holds the entries, and how `read_matrix` is to read it."""

    member: str  # its path inside the archive
    row: str | int
    column: str | int
    value: str | int
    separator: str
    duplicates: Duplicates = "error"
    checksum: Checksum | None = None


@dataclass(frozen=True)
class PublishedSplit:
    """A split that others report results on: three files, each of them masks (`.npz`) or entries."""

    train: str
    validation: str | None
    test: str
    address: str


@dataclass(frozen=True)
class Dataset:
    """One public data set: a zip archive at an address, with one file of entries in it."""

    name: str
    title: str
    address: str
    checksum: Checksum | None  # of the archive; None where the publisher gives none or changes the file
    n_bytes: int | None  # of the archive, about; None where unknown
    licence: str
    scale: Scale
    row_name: str
    column_name: str
    n_entries: int | None  # None where the publisher changes the file
    ratings: RatingsFile
    positions: str | None = None  # the same entries as a scipy `.npz`, where row and column = id - 1
    split: PublishedSplit | None = None

    @property
    def archive(self) -> str:
        """The file name of the archive."""
        return self.address.rsplit("/", maxsplit=1)[-1]


_GROUPLENS = "https://files.grouplens.org/datasets/movielens"
_PUBLISHED = "published by the data set's authors"
_MEASURED = "matches the copy measured by the project"
_QUOTED_OFFICIAL = "quoted by third parties as the one its authors publish, not verified here"
_QUOTED = "quoted by third parties, not verified here"

_CITE = "cite Harper and Konstan 2015, https://doi.org/10.1145/2827872"
_NO_REDISTRIBUTION = f"Research use only, no redistribution without the permission of GroupLens; {_CITE}."
_SAME_TERMS = f"Research use only, redistribution under the same terms only; {_CITE}."

_STARS = Scale(levels=[1, 2, 3, 4, 5])
_HALF_STARS = Scale(levels=[0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5])


def _movielens_csv(folder: str) -> RatingsFile:
    return RatingsFile(f"{folder}/ratings.csv", row="userId", column="movieId", value="rating", separator=",")


def _movielens_dat(folder: str) -> RatingsFile:
    return RatingsFile(f"{folder}/ratings.dat", row=0, column=1, value=2, separator="::")


_ALL = (
    Dataset(
        name="ml-100k",
        title="MovieLens 100K: 943 users, 1,682 movies, 1997 to 1998",
        address=f"{_GROUPLENS}/ml-100k.zip",
        checksum=Checksum("md5", "0e33842e24a9c977be4e0107933c0723", _QUOTED_OFFICIAL),
        n_bytes=4_924_029,
        licence=_NO_REDISTRIBUTION,
        scale=_STARS,
        row_name="user",
        column_name="movie",
        n_entries=100_000,
        ratings=RatingsFile(
            "ml-100k/u.data",
            row=0,
            column=1,
            value=2,
            separator="\t",
            checksum=Checksum("sha256", "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490", _MEASURED),
        ),
        split=PublishedSplit(
            train="ml-100k/u1.base",
            validation=None,
            test="ml-100k/u1.test",
            address=f"{_GROUPLENS}/ml-100k.zip",
        ),
    ),
    Dataset(
        name="ml-1m",
        title="MovieLens 1M: 6,040 users, 3,706 rated movies, 2000",
        address=f"{_GROUPLENS}/ml-1m.zip",
        checksum=Checksum("md5", "c4d9eecfca2ab87c1945afe126590906", _PUBLISHED),
        n_bytes=5_917_549,
        licence=_NO_REDISTRIBUTION,
        scale=_STARS,
        row_name="user",
        column_name="movie",
        n_entries=1_000_209,
        ratings=_movielens_dat("ml-1m"),
        positions="ml-1m/rating.npz",
        split=PublishedSplit(
            train="ml-1m/train_mask.npz",
            validation="ml-1m/val_mask.npz",
            test="ml-1m/test_mask.npz",
            # the masks that the authors of DMF-D published with their code
            address="https://github.com/nmduc/discrete-matrix-factorization (folder data/MovieLens1M)",
        ),
    ),
    Dataset(
        name="ml-10m",
        title="MovieLens 10M: 69,878 users, 10,677 rated movies, 1995 to 2009",
        address=f"{_GROUPLENS}/ml-10m.zip",
        checksum=Checksum("md5", "ce571fd55effeba0271552578f2648bd", _QUOTED_OFFICIAL),
        n_bytes=65_566_137,
        licence=_NO_REDISTRIBUTION,
        scale=_HALF_STARS,
        row_name="user",
        column_name="movie",
        n_entries=10_000_054,
        ratings=_movielens_dat("ml-10M100K"),
    ),
    Dataset(
        name="ml-20m",
        title="MovieLens 20M: 138,493 users, 26,744 rated movies, 1995 to 2015",
        address=f"{_GROUPLENS}/ml-20m.zip",
        checksum=Checksum("md5", "cd245b17a1ae2cc31bb14903e1204af3", _QUOTED_OFFICIAL),
        n_bytes=198_702_078,
        licence=_NO_REDISTRIBUTION,
        scale=_HALF_STARS,
        row_name="user",
        column_name="movie",
        n_entries=20_000_263,
        ratings=_movielens_csv("ml-20m"),
    ),
    Dataset(
        name="ml-25m",
        title="MovieLens 25M: 162,541 users, 59,047 rated movies, 1995 to 2019",
        address=f"{_GROUPLENS}/ml-25m.zip",
        checksum=Checksum("md5", "6b51fb2759a8657d3bfcbfc42b592ada", _QUOTED_OFFICIAL),
        n_bytes=261_978_986,
        licence=_NO_REDISTRIBUTION,
        scale=_HALF_STARS,
        row_name="user",
        column_name="movie",
        n_entries=25_000_095,
        ratings=_movielens_csv("ml-25m"),
    ),
    Dataset(
        name="ml-32m",
        title="MovieLens 32M: 200,948 users, 84,432 rated movies, 1995 to 2023",
        address=f"{_GROUPLENS}/ml-32m.zip",
        checksum=Checksum("md5", "d472be332d4daa821edc399621853b57", _QUOTED_OFFICIAL),
        n_bytes=238_950_008,
        licence=_SAME_TERMS,
        scale=_HALF_STARS,
        row_name="user",
        column_name="movie",
        n_entries=32_000_204,
        ratings=_movielens_csv("ml-32m"),
    ),
    Dataset(
        name="ml-latest-small",
        title="MovieLens Latest Small: some 600 users; changes over time, for trying things out",
        address=f"{_GROUPLENS}/ml-latest-small.zip",
        checksum=None,
        n_bytes=1_000_000,
        licence=_SAME_TERMS,
        scale=_HALF_STARS,
        row_name="user",
        column_name="movie",
        n_entries=None,
        ratings=_movielens_csv("ml-latest-small"),
    ),
    Dataset(
        name="goodbooks-10k",
        title="Goodbooks-10k: 53,424 readers, the 10,000 most rated books",
        address="https://github.com/zygmuntz/goodbooks-10k/releases/download/v1.0/goodbooks-10k.zip",
        checksum=Checksum("sha256", "261b97b56db61f3fb2ce5aadbb13704d30179fcc986c17ace665a0af9ed00731", _QUOTED),
        n_bytes=None,
        licence="Creative Commons Attribution-ShareAlike 4.0.",
        scale=_STARS,
        row_name="reader",
        column_name="book",
        n_entries=5_976_479,
        ratings=RatingsFile("ratings.csv", row="user_id", column="book_id", value="rating", separator=","),
    ),
    Dataset(
        name="filmtrust",
        title="FilmTrust: 1,508 users, 2,071 movies, crawled in 2011",
        address="https://guoguibing.github.io/librec/datasets/filmtrust.zip",
        checksum=Checksum("sha256", "de4a55cb4ae26f663d88e9ad1ba1fae2d0d6d7a7499e37dc5245bab470c2d13c", _QUOTED),
        n_bytes=None,
        licence="No licence is stated; cite Guo, Zhang and Yorke-Smith, IJCAI 2013.",
        scale=Scale(levels=[0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]),
        row_name="user",
        column_name="movie",
        n_entries=35_494,
        # three of its 35,497 lines repeat a pair
        ratings=RatingsFile("ratings.txt", row=0, column=1, value=2, separator=" ", duplicates="last"),
    ),
)

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}
