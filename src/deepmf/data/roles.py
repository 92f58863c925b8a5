"""The role of a file: whether its lines hold entries, pairs, a history, labels, features or rows, and its header."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from deepmf.data.delimited import is_missing, is_number
from deepmf.data.ids import is_whole
from deepmf.matrix.frames import choose_columns, has_usual_names, in_words

# What people call columns beside the usual names; never an id in the first line of a file.
_HEADINGS = {"u", "i", "r", "c", "x", "y", "id", "ids", "name", "title", "key", "date", "year", "time", "timestamp"}

Fields = Sequence[str]
IsKnown = Callable[[str], bool]


@dataclass(frozen=True)
class Role:
    """What each line of a file holds.

    columns: which of a row, a column and a value.
    content: what a file without any such line does not hold.
    is_header: whether the first line names columns, given the lines after it and which ids are known.
    defines_ids: whether the file decides of which type its ids are; otherwise all text stays text, for the labels that
    are known already decide, and what else a line holds is ignored.
    """

    columns: tuple[str, ...]
    content: str
    is_header: Callable[[Fields, Sequence[Fields], IsKnown], bool]
    defines_ids: bool = False

    @property
    def needed(self) -> str:
        """What a line must hold, in words."""
        return in_words(self.columns)


def _is_header_of_entries(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Say whether two of the names are usual, or there is no number and something else for the value.

    Otherwise its ids decide: both are headings, or neither is a whole number where all that follow are.
    """
    if sum(has_usual_names(first, [role]) for role in ("row", "column", "value")) >= 2:
        return True
    roles = _places(first)
    row, column, value = (first[at] for at in roles)
    if not any(map(is_number, first)) and not is_missing(value):
        return True
    if all(
        text.strip().lower() in _HEADINGS or has_usual_names([text], [role])
        for text, role in ((row, "row"), (column, "column"))
    ):
        return True
    ids = [fields[at] for fields in rest for at in roles[:2] if at < len(fields)]
    return (
        bool(ids) and all(map(is_whole, ids)) and not any(is_whole(text) or is_missing(text) for text in (row, column))
    )


def _is_header_of_pairs(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Say whether the names are usual, or neither numbers nor gaps nor ids that are known."""
    if has_usual_names(first, ["row", "column"]):
        return True
    return not any(map(is_missing, first[:2])) and not any(is_whole(field) or is_known(field) for field in first)


def _is_header_of_history(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Say whether the column has a usual name, or there is neither a number nor a gap."""
    return has_usual_names(first, ["column"]) or not any(is_number(field) or is_missing(field) for field in first)


def _is_header_of_labels(first: Fields, is_known: IsKnown, *, role: str) -> bool:
    """Say whether a name is usual or a heading, and none an id that is known; any other text is an unknown id."""
    if any(map(is_known, first)):
        return False
    return has_usual_names(first, [role]) or any(field.strip().lower() in _HEADINGS for field in first)


def _places(names: Fields) -> list[int]:
    """Return where row, column and value stand among names, of which those of an entry may be equal."""
    if len(set(names)) < len(names):
        return [0, 1, 2]
    return [list(names).index(name) for name in choose_columns(names, dict.fromkeys(ENTRIES.columns)).values()]


def _is_header_of_table(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Say whether something beside the row id is neither a number nor a gap, or the numbers count up, as years do."""
    others = first[1:]
    if not all(is_number(field) or is_missing(field) for field in others):
        return True
    counts_up = all(map(is_whole, others)) and all(int(a) < int(b) for a, b in pairwise(others))
    return (
        first[0].strip().lower() in _HEADINGS
        or has_usual_names(first[:1], ["row"])
        or (counts_up and not is_number(first[0]))
    )


def _is_header_of_features(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Say whether the first name is usual or a heading, or there is neither a number nor a gap."""
    if has_usual_names(first[:1], ["row"]) or has_usual_names(first[:1], ["column"]):
        return True
    return first[0].strip().lower() in _HEADINGS or not any(is_number(field) or is_missing(field) for field in first)


ENTRIES = Role(("row", "column", "value"), "entries", _is_header_of_entries, defines_ids=True)
PAIRS = Role(("row", "column"), "lines with a row and a column", _is_header_of_pairs)
HISTORY = Role(("column", "value"), "lines with a column and a value", _is_header_of_history)
TABLE = Role(("row", "column"), "entries", _is_header_of_table, defines_ids=True)
COLUMNS = Role(
    ("column",), "lines with a column", lambda first, _, is_known: _is_header_of_labels(first, is_known, role="column")
)
ROWS = Role(("row",), "lines with a row", lambda first, _, is_known: _is_header_of_labels(first, is_known, role="row"))
FEATURES = Role(("label", "feature"), "lines with a label and features", _is_header_of_features, defines_ids=True)
