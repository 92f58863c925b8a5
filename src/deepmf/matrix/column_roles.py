"""Which column of a table holds rows, columns, values, counts, times or weights: as asked, by name
or by content."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import BadEntries, BadSetting, Hint, show_value, warn
from deepmf.matrix.arrays import Array
from deepmf.matrix.table_form import COUNT, DETECT, ValueColumn

# Usual names of the columns by role, in lower case without separators.
USUAL_NAMES = {
    "row": "row rowid user userid uid customer customerid visitor visitorid person respondent sample".split(),
    "column": (
        "column columnid col item itemid iid movie movieid film product productid book bookid isbn question marker "
        "sensor track trackid artist artistid song songid page sku asin stockcode article articleid"
    ).split(),
    "value": "value rating ratings score stars level answer response".split(),
    "count": [COUNT],
}

# Usual names of the labels of features, beside those of rows and of columns.
_USUAL_LABELS = ("id", "label", "key")

# names or positions of columns by role; None: it is recognised
Asked = Mapping[str, str | int | None]

# Names of columns that hold neither values nor, if there are others, the ids of rows and columns.
_TIMES = "time timestamp ts date datetime day month year hour unixtime epoch when created updated".split()
# as pandas and R write an index without a name
_LINE_NUMBERS = ("", "index", "unnamed:0", "indexlevel0", "level0")
_TIME_ENDING = re.compile(r"(timestamp|datetime|(?<=[_ .-])(date|at|ts))$", re.I)
_ID_NAME = re.compile(
    r"((^|[_ .-])(id|ids|uuid|guid|key)|[a-z0-9](Id|ID))$|^(ID|index)$"
    r"|^(transaction|session|order|invoice|event|visit|device|basket)s?id$"
)
MANY_COLUMNS = 5  # this many columns of numbers beside the row ids make a wide table
# unix times from 1979 to 2103, in seconds and in milliseconds
_WHOLE_TIMES = ((3e8, 4.2e9), (3e11, 4.2e12))

VALUE_HINT = Hint(
    "value= names the column of values, count= a column that counts interactions, value=None reads interactions alone",
    "--value names the field of values, --count a field that counts interactions, --no-values reads interactions alone",
)


class Content(NamedTuple):
    """What the first lines of a table show about its columns.

    has_names: whether the table names its columns; otherwise the first are rows, columns and
        values.
    times: names of columns that hold unix times or dates.
    texts: names of columns that hold other text.
    unread: a date of each column of `times` whose dates cannot be read, such as 31/12/2024.
    """

    has_names: bool = True
    times: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    unread: Mapping[str, str] = MappingProxyType({})


UNSEEN = Content()  # of columns of which only the names are known


class ChosenColumns(NamedTuple):
    """The column of each role, and how sure that is.

    columns: the names of columns by role: row, column, value or count, time, weight.
    is_guess: whether a role that was not asked for has none or several columns with a usual name.
    is_uncertain: whether a guess among named columns may well be wrong.
    is_time_detected: whether the times were recognised.
    """

    columns: dict[str, str]
    is_guess: bool
    is_uncertain: bool
    is_time_detected: bool


def choose_columns(
    names: Sequence[str],
    asked: Asked,
    *,
    value: ValueColumn,
    time: ValueColumn,
    content: Content,
    roles: Sequence[str] | None = None,
    usual_count: str | None = None,
) -> ChosenColumns:
    """Choose the columns of a table that hold rows, columns, values or counts, times and weights.

    asked: names or positions of columns by role.
    roles: those that a line needs; None for entries with values, or interactions without.
    usual_count: name of the counts in the table that this one belongs to.
    """
    asked_extras = {"time": None if time is DETECT else time, "weight": asked.get("weight")}
    extras = {
        role: find_column(names, column, role)
        for role, column in asked_extras.items()
        if column is not None
    }
    if len(set(extras.values())) < len(extras):
        raise BadEntries(
            f"the time and the weight must be two columns; got {extras['time']!r} for both"
        )
    candidates = [name for name in names if name not in extras.values()]
    asked = {role: pin_column(names, column) for role, column in asked.items()}
    if roles is not None:
        asked_roles = {role: asked.get(role) for role in roles}
    else:
        if asked.get("count") is None and usual_count in candidates:
            asked["count"] = usual_count
        # positions are no usual names
        known_names = candidates if content.has_names else [""] * len(candidates)
        asked_roles = find_roles(known_names, asked, value=pin_column(names, value))
    columns = assign_roles(candidates, asked_roles, content)
    detected: dict[str, str] = {}
    if time is DETECT:
        detected = detect_time(names, [*columns.values(), *extras.values()], content)
    return ChosenColumns(
        columns=columns | extras | detected,
        is_guess=is_guess(candidates, asked_roles),
        is_uncertain=is_uncertain(candidates, asked_roles),
        is_time_detected=bool(detected),
    )


def assign_roles(names: Sequence[str], asked: Asked, content: Content = UNSEEN) -> dict[str, str]:
    """Choose a column for each role: as asked for, by a usual name, or the first columns left.

    With more columns than roles, a column with the usual name of a role that is not needed is not
    used for another one. Times and ids are never values, and several columns that could hold the
    values are refused.
    """
    roles = list(asked)
    if len(names) < len(roles):
        shown = ", ".join(map(str, names))
        raise BadEntries(f"columns are needed for {join_roles(roles)}; got {len(names)}: {shown}")
    columns = {
        role: find_column(names, column, role)
        for role, column in asked.items()
        if column is not None
    }
    plain = {_normalise(name): name for name in reversed(names)}
    for role in USUAL_NAMES if len(names) > len(roles) else roles:
        matches = [
            plain[word]
            for word in USUAL_NAMES[role]
            if word in plain and plain[word] not in columns.values()
        ]
        if role not in columns and matches:
            columns[role] = matches[0]
    open_roles = [role for role in roles if role not in columns]
    for at, role in enumerate(open_roles):
        candidates = [name for name in names if name not in columns.values()]
        if role == "value":
            columns[role] = _choose_value(candidates, content)
            continue
        lack_values = all(
            name in content.texts or _explain_unfit(name, content) for name in candidates
        )
        # ids need not leave a column for values where none can hold them
        n_needed = len(open_roles) - at - ("value" in open_roles and lack_values)
        ids = [name for name in candidates if not _is_time_or_line_number(name, content)]
        columns[role] = (ids if len(ids) >= n_needed else candidates)[0]
    columns = {role: columns[role] for role in roles}
    if len(set(columns.values())) < len(roles):
        shown = ", ".join(map(str, columns.values()))
        raise BadEntries(f"{join_roles(roles)} must be different columns; got {shown}")
    return columns


def _is_time_or_line_number(name: str, content: Content) -> bool:
    if content.has_names:
        return _is_time_name(name) or _is_line_number(name)
    return name in content.times


def _choose_value(left: Sequence[str], content: Content) -> str:
    """Choose the only column that may hold values, or the first in a table without names."""
    reasons = {name: _explain_unfit(name, content) for name in left}
    fit = [name for name in left if reasons[name] is None]
    numbers = [name for name in fit if name not in content.texts] or fit[:1]
    if not fit:
        shown = ", ".join(f"{name!r} {reasons[name]}" for name in left) or "no column is left"
        raise BadEntries(f"there is no column of values: {shown}", hint=VALUE_HINT)
    if content.has_names and len(numbers) > 1:
        raise BadEntries(
            f"several columns could hold the values: {', '.join(map(repr, numbers))}",
            hint=VALUE_HINT,
        )
    return numbers[0]


def _explain_unfit(name: str, content: Content) -> str | None:
    """Return why a column cannot hold values; None if it can."""
    if name in content.times or (content.has_names and _is_time_name(name)):
        return "looks like a time"
    if content.has_names and _is_line_number(name):
        return "looks like line numbers"
    return "looks like an id" if content.has_names and _ID_NAME.search(str(name)) else None


def _is_time_name(name: str) -> bool:
    return _normalise(name) in _TIMES or bool(_TIME_ENDING.search(str(name)))


def _is_line_number(name: str) -> bool:
    return _normalise(name) in _LINE_NUMBERS


def are_times(numbers: Array) -> bool:
    """Whether all numbers are whole and could be unix times, in seconds or in milliseconds."""
    if numbers.size == 0:
        return False
    lowest = numbers.min()
    highest = numbers.max()
    inside = any(low <= lowest and highest <= high for low, high in _WHOLE_TIMES)
    return inside and bool(np.all(numbers % 1 == 0))


def find_roles(
    names: Sequence[str], asked: Asked, *, value: ValueColumn
) -> dict[str, str | int | None]:
    """Return the roles of a long table with the columns asked for: interactions have a count or
    nothing but ids.

    A table of two columns holds interactions, and so does one with a column called "interactions"
    and no values.
    """
    count = asked.get("count")
    ids = {role: asked.get(role) for role in ("row", "column")}
    check_roles(value, count)
    is_counted = count is not None or (len(names) > 2 and has_usual_names(names, ["count"]))
    if value is DETECT and count is None:
        detected = (len(names) == 2 or is_counted) and not has_usual_names(names, ["value"])
        value = None if detected else DETECT
    if value is None or count is not None:
        return ids | ({"count": count} if is_counted else {})
    return ids | {"value": None if value is DETECT else value}


def check_roles(value: ValueColumn, count: str | int | None) -> None:
    """Refuse a column of values together with a column of counts."""
    if count is not None and value is not None and value is not DETECT:
        raise BadSetting(
            f"entries have values or are counted interactions; got value={value!r} and count={count!r}"
        )


def describe_roles(chosen: Mapping[str, str]) -> str:
    """Return in words which column is taken for which role.

    >>> describe_roles({"row": "'who'", "column": "'what'", "value": "'mark'"})
    "'who' is taken as the row, 'what' as the column and 'mark' as the value"
    >>> describe_roles({"row": "'who'", "column": "'what'"})
    "'who' is taken as the row and 'what' as the column"
    """
    verbs = ("is taken as", *["as"] * len(chosen))
    *before, last = (
        f"{name} {verb} the {role}"
        for verb, (role, name) in zip(verbs, chosen.items(), strict=False)
    )
    return f"{', '.join(before)} and {last}" if before else last


def choose_label(
    names: Sequence[str], label: str | int | None, known_as: Sequence[str] = ()
) -> str:
    """Choose the column of labels: as given, by a name known elsewhere, by a usual name, or the
    first.

    >>> choose_label(["year", "item_id", "title"], None), choose_label(["title", "year"], None)
    ('item_id', 'title')
    """
    if label is not None:
        return find_column(names, label, "labels")
    plain = {_normalise(name): name for name in reversed(names)}
    usual = (*USUAL_NAMES["row"], *USUAL_NAMES["column"], *_USUAL_LABELS)
    usual_labels = [name for name in known_as if name in names] or [
        plain[word] for word in usual if word in plain
    ]
    return [*usual_labels, *names][0]


def is_guess(names: Sequence[str], asked: Asked) -> bool:
    """Whether a role that was not asked for has none or several columns with a usual name."""
    plain = list(map(_normalise, names))
    open_roles = [role for role, column in asked.items() if column is None]
    return any(sum(name in USUAL_NAMES[role] for name in plain) != 1 for role in open_roles)


def is_uncertain(names: Sequence[str], asked: Asked) -> bool:
    """Whether a guess among named columns may well be wrong: of values, or with columns left over.

    >>> is_uncertain(["who", "what", "stars"], dict.fromkeys(("row", "column", "value")))
    False
    >>> is_uncertain(["who", "what", "plays"], dict.fromkeys(("row", "column", "value")))
    True
    """
    if all(str(name).isdigit() for name in names):
        return False
    of_value = {role: column for role, column in asked.items() if role == "value"}
    return is_guess(names, of_value) or (len(names) > len(asked) and is_guess(names, asked))


def join_roles(roles: Sequence[str]) -> str:
    """Join roles as words.

    >>> join_roles(["row", "column", "value"])
    'a row, a column and a value'
    """
    *before, last = (f"a {role}" for role in roles)
    return f"{', '.join(before)} and {last}" if before else last


def has_usual_names(names: Sequence[str], roles: Sequence[str]) -> bool:
    """Whether each role has a column with a usual name."""
    plain = set(map(_normalise, names))
    return all(not plain.isdisjoint(USUAL_NAMES[role]) for role in roles)


def looks_like_ids(name: object) -> bool:
    """Whether a column is named like the ids of rows."""
    return _normalise(name) in (*USUAL_NAMES["row"], *_USUAL_LABELS, "unnamed:0") or bool(
        _ID_NAME.search(str(name))
    )


def detect_time(names: Sequence[str], taken: Collection[str], content: Content) -> dict[str, str]:
    """Return the only column left whose name and content are times, by role; nothing where there is
    none."""
    time_names = [
        name
        for name in names
        if name in content.times and _is_time_name(name) and name not in taken
    ]
    if not content.has_names or len(time_names) != 1:
        return {}
    if time_names[0] in content.unread:
        warn(
            f"the dates in {time_names[0]!r} are not read: {content.unread[time_names[0]]!r} is not "
            "as 2024-12-31, and day and month may be either way round"
        )
        return {}
    return {"time": time_names[0]}


def pin_column(names: Sequence[str], wanted: Any) -> Any:
    """Return the name of the column at a position; anything else as it is."""
    is_position = isinstance(wanted, int | np.integer) and 0 <= wanted < len(names)
    return names[wanted] if is_position else wanted


def find_column(names: Sequence[str], wanted: str | int, role: str) -> str:
    """Return the name of a column that is asked for by its name or its position."""
    name: str = pin_column(names, wanted)
    if not isinstance(name, Hashable) or name not in names:
        shown = ", ".join(map(repr, names))
        raise BadEntries(
            f"there is no column {show_value(wanted)} for the {role}; there are {shown}"
        )
    return name


def _normalise(name: object) -> str:
    return str(name).lower().replace("_", "").replace(" ", "")
