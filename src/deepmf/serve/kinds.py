"""Kinds of feedback, such as views, likes and purchases, and the values that they stand for."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path

from deepmf.errors import BadSetting, FileAbsent, UnreadableFile
from deepmf.matrix.scale import Scale
from deepmf.serve.errors import ApiError
from deepmf.serve.schemas import LONGEST_KIND

Kinds = Mapping[str, float]  # the value of each kind


def read_kinds(path: Path) -> dict[str, float]:
    """Read a TOML file with a line such as `purchase = 5` for each kind."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileAbsent(
            f"there is no file {path} of kinds; it has a line such as purchase = 5 for each kind"
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UnreadableFile(f"the file {path} of kinds cannot be read as TOML ({error})") from error
    for name, value in content.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise BadSetting(f"{path}: the kind {name!r} is {value!r}; a kind is a number, such as {name} = 5")
        if not 1 <= len(name) <= LONGEST_KIND:
            raise BadSetting(f"{path}: the name of the kind {name!r} must have 1 to {LONGEST_KIND} characters")
    return {name: float(value) for name, value in content.items()}


def check_kinds(kinds: Kinds, scale: Scale) -> None:
    """Raise `BadSetting` for kinds whose values are not on a scale."""
    for name, value in kinds.items():
        if not scale.holds(value):
            raise BadSetting(f"the kind {name!r} has the value {value:g}; the scale of the model is {scale}")


def find_value(kind: str, kinds: Kinds) -> float:
    """Return the value of a kind; raise `ApiError` if there is no such kind."""
    if kind not in kinds:
        raise ApiError(422, "unknown_kind", explain_unknown_kind(kinds))
    return kinds[kind]


def explain_unknown_kind(kinds: Kinds) -> str:
    """Return why a kind is not known."""
    if not kinds:
        return "this service has no kinds of feedback; send values"
    return f"this kind is not known; this service has {', '.join(kinds)}"
