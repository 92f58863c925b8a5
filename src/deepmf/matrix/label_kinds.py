"""The kinds of labels that files hold: ints, floats, and those that are written as text and read back from it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from deepmf.errors import BadSetting
from deepmf.matrix.labels import Labels

ENCODING = ("utf-8", "surrogatepass")  # half surrogates come from odd file names; kept as given


class TextKind(NamedTuple):
    """A kind of label that is stored as text: the type of its labels, and the way there and back."""

    type: type
    write: Callable[[Any], str]
    read: Callable[[str], Any]

    def label(self, text: str) -> Any:
        """Return the label that a text stands for; only the text that the label is written as is read."""
        try:
            label = self.read(text)
        except (ValueError, LookupError, ArithmeticError) as error:  # ArithmeticError: of decimals
            raise ValueError(f"{text!r} is no {self.type.__name__}") from error
        if self.write(label) != text:
            raise ValueError(f"{text!r} is no {self.type.__name__}")
        return label


AS_TEXT = {
    kind.type.__name__: kind
    for kind in (
        TextKind(str, str, str),
        TextKind(bool, str, {"False": False, "True": True}.__getitem__),
        TextKind(bytes, lambda label: label.decode("latin-1"), lambda text: text.encode("latin-1")),
        TextKind(date, date.isoformat, date.fromisoformat),
        TextKind(datetime, datetime.isoformat, datetime.fromisoformat),
        TextKind(Decimal, str, Decimal),
        TextKind(UUID, str, UUID),
    )
}


def stored_kind(labels: Labels) -> str:
    """Return the kind that a file calls labels by; those of a kind that no file can hold are refused."""
    some = labels[:1]
    if some.dtype.kind == "i":
        return "int"
    found = type(some[0]) if len(labels) else str
    if found is datetime and any(type(label.tzinfo) not in (type(None), timezone) for label in labels.array):
        raise BadSetting(
            f"{labels.axis} labels with a named time zone cannot be saved, such as {some[0]!r}; "
            "use times in UTC, or strings"
        )
    known = {float: "float"} | {kind.type: name for name, kind in AS_TEXT.items()}
    if found not in known:
        raise BadSetting(
            f"{labels.axis} labels of type {found.__name__} cannot be saved, such as {some[0]!r}; use ints or strings"
        )
    return known[found]
