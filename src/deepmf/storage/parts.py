"""Declared files: the content of a file is declared once, and the declaration writes, reads and
checks it.

A `Form` lists parts. A `Part` is a tensor or a field of the JSON content: its name, type, shape by
named sizes and checks. A size is known to the reader (the number of rows), or the first part that
has it decides.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadModelFile
from deepmf.storage.model_file import Packed, Tensors, check_finite, has_values_to_check

Sizes = Mapping[str, int]

_PIECE = 1 << 22  # numbers checked at a time


def are_positions(array: npt.NDArray[Any], count: int) -> bool:
    """Whether all whole numbers are positions on an axis of this length."""
    unsigned = array.view(f"u{array.itemsize}")  # a negative number is larger than any position
    return all(
        unsigned[start : start + _PIECE].max() < count for start in range(0, array.size, _PIECE)
    )


class Check(NamedTuple):
    """What a part must be, in words, and whether it is; `is_lazy` checks skip memory-mapped
    tensors."""

    wording: str
    holds: Callable[[Any, Sizes], Any]
    is_lazy: bool = False


positive = Check("be above 0", lambda found, _: np.all(found > 0))
not_negative = Check("be at least 0", lambda found, _: np.all(found >= 0))
rising = Check("increase", lambda found, _: np.all(found[1:] > found[:-1]))
not_falling = Check("not fall", lambda found, _: np.all(found[1:] >= found[:-1]))
distinct = Check("be different", lambda found, _: len(set(found)) == len(found))


def between(low: float, high: float) -> Check:
    """Return the check that numbers have bounds, which are allowed."""
    return Check(
        f"be {low:g} to {high:g}", lambda found, _: np.all(found >= low) and np.all(found <= high)
    )


def below(high: float) -> Check:
    """Return the check that the size of numbers is below a bound."""
    return Check(f"be below {high:g}", lambda found, _: np.all(np.abs(found) < high))


def at_most(size: str) -> Check:
    """Return the check that a number is 0 to a size."""
    return Check(f"be 0 to the number of {size}", lambda found, sizes: 0 <= found <= sizes[size])


def positions_of(size: str) -> Check:
    """Return the check that numbers are positions below a size, so that no other memory is read."""
    return Check(
        f"be positions of {size}", lambda found, sizes: are_positions(found.ravel(), sizes[size])
    )


def check_ends(size: str) -> Check:
    """Return the check that the first start is 0 and the last one a size."""
    return Check(
        f"rise from 0 to the number of {size}",
        lambda found, sizes: found[0] == 0 and found[-1] == sizes[size],
    )


def one_of(*options: Any) -> Check:
    """Return the check that a field is one of some options."""
    return Check(f"be one of {', '.join(map(repr, options))}", lambda found, _: found in options)


_LARGEST_WHOLE = 2**63 - 1

# Integers up to here are exact in double precision; counts of steps and sweeps are far smaller.
_LARGEST_COUNT = 2**53


def is_number(item: Any) -> bool:
    """Whether a field is a finite number."""
    return type(item) in (int, float) and abs(item) <= sys.float_info.max


# Types of JSON fields, with the check of an item.
_FIELDS: dict[str, Callable[[Any], bool]] = {
    "number": is_number,
    "whole": lambda item: type(item) is int and abs(item) <= _LARGEST_WHOLE,
    "text": lambda item: isinstance(item, str),
    "flag": lambda item: isinstance(item, bool),
    "object": lambda item: isinstance(item, dict),
    "any": lambda item: True,
}


class Part:
    """A tensor or a field: its name, its type, its shape, and checks.

    kind: a numpy type ("float32"), or several ("int32 int64"), of a tensor; or the type of a
        field: "number", "whole", "text", "flag", "object", "any", or another form.
    shape: lengths: numbers, names of sizes, or formulas of them ("rows + 1", "samples * latent"). A
        field with a shape is a list.
    optional: it may be absent, and is then None.
    is_finite: whether the numbers of a tensor are finite.
    """

    def __init__(
        self,
        name: str,
        kind: str | Form,
        shape: tuple[str | int, ...] = (),
        *checks: Check,
        optional: bool = False,
        is_finite: bool = True,
    ) -> None:
        self.name, self.kind, self.shape, self.checks = name, kind, shape, checks
        self.optional, self.is_finite = optional, is_finite

    @property
    def is_tensor(self) -> bool:
        """Whether the part is a tensor."""
        return isinstance(self.kind, str) and self.kind not in _FIELDS

    def read(
        self, content: Mapping[str, Any], tensors: Tensors, name: str, sizes: dict[str, int]
    ) -> Any:
        """Return the stored part; `sizes` gets those that the part decides."""
        stored_value = tensors.get(name) if self.is_tensor else content.get(self.name)
        if stored_value is None:
            if self.optional:
                return None
            raise BadModelFile(f"the stored {name} is missing")
        is_lazy = self.is_tensor and not has_values_to_check(tensors)
        if self.is_tensor:
            self._check_tensor(stored_value, name, sizes)
            if self.is_finite and not is_lazy:
                check_finite(name, stored_value)
        else:
            stored_value = self._read_field(stored_value, tensors, name, sizes)
        for check in self.checks:
            if not (is_lazy and check.is_lazy) and not check.holds(stored_value, sizes):
                raise BadModelFile(
                    f"the stored {name} must {check.wording}; got {reprlib.repr(stored_value)}"
                )
        return stored_value

    def _check_tensor(self, array: npt.NDArray[Any], name: str, sizes: dict[str, int]) -> None:
        types = str(self.kind).split()
        if array.dtype.name not in types or not self._fits(array.shape, sizes):
            lengths = [_find_length(length, sizes) for length in self.shape]
            expected_shape = ", ".join(
                "any" if length is None else str(length) for length in lengths
            )
            raise BadModelFile(
                f"the tensor {name} must be of {' or '.join(types)} and of shape ({expected_shape}); "
                f"got {array.dtype} of shape {array.shape}"
            )

    def _fits(self, shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
        """Whether a shape fits; sizes that are not known yet are set to what they are in it."""
        if len(shape) != len(self.shape):
            return False
        for expected_length, length in zip(self.shape, shape, strict=True):
            if isinstance(expected_length, str):
                size, sign, offset = _split_length(expected_length)
                if size not in sizes and sign != "*":
                    sizes[size] = max(length - int(sign + offset), 0)
            if _find_length(expected_length, sizes) != length:
                return False
        return True

    def _read_field(self, field: Any, tensors: Tensors, name: str, sizes: dict[str, int]) -> Any:
        if not self.shape:
            return self._read_item(field, tensors, name, sizes)
        if not isinstance(field, list) or not self._fits((len(field),), sizes):
            expected_length = _find_length(self.shape[0], sizes)
            length = "" if expected_length is None else f" of length {expected_length}"
            raise BadModelFile(
                f"the stored {name} must be a list{length}; got {reprlib.repr(field)}"
            )
        items = [
            self._read_item(item, tensors, f"{name}.{number}", sizes)
            for number, item in enumerate(field)
        ]
        return np.array(items, dtype=np.float64) if self.kind == "number" else items

    def _read_item(self, item: Any, tensors: Tensors, name: str, sizes: dict[str, int]) -> Any:
        if isinstance(self.kind, Form):
            return self.kind.read(item, tensors, prefix=name, **sizes)
        if not _FIELDS[self.kind](item):
            raise BadModelFile(
                f"the stored {name} must be of the type {self.kind}; got {reprlib.repr(item)}"
            )
        return float(item) if self.kind == "number" else item


class Form:
    """The declared content of a file or of a part of it; `prefix` is that of the names of its
    tensors.

    >>> form = Form(Part("means", "float32", ("samples", "latent")), Part("spread", "number", (), positive), prefix="x")
    >>> packed = form.pack({"means": np.zeros((2, 3)), "spread": 0.5})
    >>> packed.content, list(packed.tensors)
    ({'spread': 0.5}, ['x.means'])
    >>> form.read(*packed, latent=3)["spread"]
    0.5
    """

    def __init__(self, *parts: Part, prefix: str = "", is_exact: bool = False) -> None:
        self.parts, self.prefix, self.is_exact = parts, prefix, is_exact

    @classmethod
    def like(cls, tensors: Mapping[str, Any], prefix: str) -> Form:
        """Return the form of these arrays or tensors and no others; counts and variances are not
        negative."""
        parts = (
            Part(name, _find_type(tensor), tuple(tensor.shape), *_find_checks(name, tensor))
            for name, tensor in tensors.items()
        )
        return cls(*parts, prefix=prefix, is_exact=True)

    def pack(self, values: Any = None, *, prefix: str | None = None, **others: Any) -> Packed:
        """Return the parts for a file: attributes or items of `values`, or `others` by name; None
        is left out."""
        content: dict[str, Any] = {}
        tensors: dict[str, npt.NDArray[Any]] = {}
        for part, name in self._name_parts(prefix):
            value = others[part.name] if part.name in others else _get(values, part.name)
            if value is None:
                continue
            if part.is_tensor:
                array, types = np.asarray(value), str(part.kind).split()
                tensors[name] = array if array.dtype.name in types else array.astype(types[0])
            elif isinstance(part.kind, Form):
                items = (
                    [(value, name)]
                    if not part.shape
                    else [(item, f"{name}.{k}") for k, item in enumerate(value)]
                )
                packed = [part.kind.pack(item, prefix=place) for item, place in items]
                content[part.name] = (
                    [packed_item.content for packed_item in packed]
                    if part.shape
                    else packed[0].content
                )
                tensors |= {
                    key: array
                    for packed_item in packed
                    for key, array in packed_item.tensors.items()
                }
            else:
                plain = value.tolist() if isinstance(value, np.ndarray) else value
                content[part.name] = list(plain) if part.shape else plain
        return Packed(content, tensors)

    def read(
        self,
        content: Any,
        tensors: Tensors = {},  # noqa: B006 (never changed)
        *,
        prefix: str | None = None,
        **sizes: int,
    ) -> dict[str, Any]:
        """Return the parts by name; anything that does not match the declaration raises
        `BadModelFile`."""
        if not isinstance(content, dict):
            raise BadModelFile(
                f"the stored {prefix or self.prefix or 'content'} must have names; got {reprlib.repr(content)}"
            )
        if self.is_exact:
            declared_names = {name for _, name in self._name_parts(prefix)}
            unknown = {
                name for name in tensors if name.startswith(f"{self.prefix}.")
            } - declared_names
            if unknown:
                raise BadModelFile(f"the stored tensor {min(unknown)} has no place in the model")
        return {
            part.name: part.read(content, tensors, name, sizes)
            for part, name in self._name_parts(prefix)
        }

    def _name_parts(self, prefix: str | None = None) -> Iterable[tuple[Part, str]]:
        start = self.prefix if prefix is None else prefix
        return ((part, f"{start}.{part.name}" if start else part.name) for part in self.parts)


def _split_length(length: str) -> list[str]:
    return length.split() if " " in length else [length, "+", "0"]


def _find_length(length: str | int, sizes: Sizes) -> int | None:
    """Return a length in numbers; None where its size is not known.

    >>> [_find_length(length, {"rows": 3}) for length in (2, "rows", "rows + 1", "rows - 1", "rows * rows", "any")]
    [2, 3, 4, 2, 9, None]
    """
    if isinstance(length, int):
        return length
    size, sign, offset = _split_length(length)
    if size not in sizes:
        return None
    by = sizes[offset] if offset in sizes else int(offset)
    return sizes[size] * by if sign == "*" else sizes[size] + int(f"{sign}{by}")


def _get(values: Any, name: str) -> Any:
    return values[name] if isinstance(values, Mapping) else getattr(values, name)


def _find_type(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _find_checks(name: str, tensor: Any) -> list[Check]:
    if name.endswith("running_var"):
        return [
            Check("have variances of at least 0", lambda found, _: np.all(found >= 0), is_lazy=True)
        ]
    is_count = _find_type(tensor).startswith(("int", "uint"))
    return [between(0, _LARGEST_COUNT)] if is_count else []
