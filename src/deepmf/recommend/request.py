"""A request: how many columns are recommended, in which order and from which; made once, then
passed whole.

`Model.recommend` makes it from keyword arguments, the service from JSON, the command line from
options. A field with a help has the same name, default, help and bounds ("ge", "le") in all three.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from deepmf.errors import (
    BadSetting,
    Hint,
    check_choice,
    check_count,
    check_flag,
    check_number,
    show_value,
)

if TYPE_CHECKING:  # the command line reads the options before it imports numpy
    from deepmf.matrix.scale import Scale

RankBy = Literal["relevance", "value", "next"]


class OrderOptions(TypedDict, total=False):
    """The keyword arguments of `Order`."""

    rank_by: RankBy | None
    relevant: float | None
    popularity: float


class ServedOptions(OrderOptions, total=False):
    """The keyword arguments of `Request` that the service takes, too."""

    at: Any
    balance: str | None
    explore: float
    explore_seed: int
    among: Iterable[Any] | None
    exclude: Iterable[Any] | None
    where: Mapping[str, Any] | None
    min_entries: int
    include_observed: bool | None


class RequestOptions(ServedOptions, total=False):
    """The keyword arguments of `Request`, without n."""

    device: str | None


def list_options(group: type[Order]) -> list[Field[Any]]:
    """Return the fields of `Order` or `Request` that the service and the command line offer under
    their names."""
    return [option for option in fields(group) if option.metadata]


@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """The order in which columns are ranked.

    Parameters
    ----------
    rank_by : "relevance" ranks by the probability that the row takes the column and likes it,
        "value" by the prediction, "next" by the probability that the column comes next, by the
        order of the row's entries. The default (None) is the setting `rank_by`: value where most
        cells have an entry; otherwise next where entries have an order by which held-out entries
        are ranked better, and relevance. A model without a presence part ranks by value.
    relevant : the smallest value that counts as liked; default: the lowest level above the mean of
        the training entries, or this mean on a scale without levels.
    popularity : how much popular columns are favoured by relevance, from 0 to 5: 1 as learned, 0
        not at all, since the odds that an entry exists are then relative to the popularity of the
        column. The probabilities that a ranking returns stay as learned.
    """

    rank_by: RankBy | None = field(
        default=None,
        metadata={
            "help": "Rank by what the row is likely to take and like, by what it takes next, or by the prediction; "
            "default: chosen at fit."
        },
    )
    relevant: float | None = field(
        default=None,
        metadata={
            "help": "Smallest value that counts as liked; default: the lowest level above the mean."
        },
    )
    popularity: float = field(
        default=1.0,
        metadata={
            "help": "How much popular columns are favoured: 1 as learned, 0 not at all.",
            "ge": 0,
            "le": 5,
        },
    )

    def __post_init__(self) -> None:
        check_choice("rank_by", self.rank_by, [*get_args(RankBy), None])
        if self.relevant is not None:
            check_number("relevant", self.relevant)
        check_number("popularity", self.popularity, 0, 5)
        if self.popularity != 1 and self.rank_by == "value":
            raise BadSetting(
                "popularity changes the order by relevance, and this order is by value",
                hint=Hint("set rank_by='relevance'", "set --rank-by relevance"),
            )

    def check_scale(self, scale: Scale) -> None:
        """Refuse an order that entries on a scale do not have."""
        if scale.is_interactions and self.relevant is not None:
            raise BadSetting(
                "interactions have no values, so there is no smallest relevant one; leave out relevant"
            )
        if scale.is_interactions and self.rank_by == "value":
            raise BadSetting("interactions have no values to rank by; leave out rank_by")
        if (
            self.relevant is not None
            and scale.is_bounded
            and not scale.low <= self.relevant <= scale.high
        ):
            raise BadSetting(
                f"relevant must lie on the scale, which is {scale}; got {self.relevant:g}"
            )

    @property
    def changed_options(self) -> OrderOptions:
        """The options of the order that are not the defaults."""
        values = [(option, getattr(self, option.name)) for option in fields(Order)]
        return {option.name: value for option, value in values if value != option.default}  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True, eq=False)
class Request(Order):
    """What a recommendation is asked for; the keyword arguments of `Model.recommend`, beside those
    of `Order`.

    Parameters
    ----------
    n : the number of columns.
    at : the time of the recommendation, for which values are predicted and which decides what is
        popular (default: that of the latest entry). Only a model that is fitted with `times="auto"`
        takes a time.
    balance : the name of a feature of columns with categories, such as "genres": lists have its
        shares as the liked entries of the row have them (Steck 2018). The columns are picked among
        the 5 n best.
    explore : the share of places, at the end of the list, that a draw from the posterior of the
        values decides, so that uncertain columns are tried; of models that sample it (BayesianMF,
        OrdinalDMF with a sampler).
    explore_seed : the seed of the draw.
    among : rank only these columns: labels, or a mask over all columns.
    exclude : leave these columns out: labels, or a mask over all columns.
    where : rank only columns whose features meet all conditions, by name: `{"year": {"min": 1990,
        "max": 1999}}` for numbers and dates (years or dates), `{"genres": {"any": ["Drama"]}}` for
        categories and lists, also with "all" and "none". Columns without the feature are left out.
    min_entries : leave out columns with fewer entries, whose predictions are uncertain.
    include_observed : also rank columns for which the row has an entry; default (None): in the
        order "next", where rows take columns again in the data, as plays and baskets do.
    device : "cuda", "cpu" or "auto" rank with torch, which is fast for many rows on a GPU; None
        ranks with numpy.
    """

    n: int = 10
    at: Any = None
    among: Iterable[Any] | None = None
    exclude: Iterable[Any] | None = None
    where: Mapping[str, Any] | None = None
    min_entries: int = field(
        default=0,
        metadata={
            "help": "Leave out columns with fewer entries, whose predictions are uncertain.",
            "ge": 0,
        },
    )
    include_observed: bool | None = field(
        default=None,
        metadata={
            "help": "Include columns that the row has an entry for; default: where rows take columns again."
        },
    )
    balance: str | None = field(
        default=None,
        metadata={
            "help": "Feature of columns, whose shares in the list are those of liked entries."
        },
    )
    explore: float = field(
        default=0.0,
        metadata={
            "help": "Share of the places that a draw from the posterior decides.",
            "ge": 0,
            "le": 1,
        },
    )
    explore_seed: int = field(
        default=0, metadata={"help": "Seed of the draw of --explore.", "ge": 0}
    )
    device: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n", self.n)
        check_count("min_entries", self.min_entries, least=0)
        check_choice("device", self.device, ["auto", "cpu", "cuda", None])
        if isinstance(self.at, list | tuple) or getattr(self.at, "shape", ()) != ():
            raise BadSetting(f"at must be a single time; got {show_value(self.at)}")
        if self.include_observed is not None:
            check_flag("include_observed", self.include_observed)
        names = self.where if isinstance(self.where, Mapping) else [None]
        if self.where is not None and not all(isinstance(name, str) for name in names):
            raise BadSetting(
                f"where must be a dict of conditions by the name of a feature; got {show_value(self.where)}"
            )
        if self.balance is not None and not isinstance(self.balance, str):
            raise BadSetting(
                f"balance must be the name of a feature of columns; got {show_value(self.balance)}"
            )
        check_count("explore_seed", self.explore_seed, least=0)
        check_number("explore", self.explore, 0, 1)


DEFAULT_REQUEST = Request()
