"""Members: what a blend is made of, such as a network and a sampler, and how the blend is stored.

A `Member` is fitted or loaded; a `FittedMember` scores pairs, and grows and shrinks with the
entries. `BlendPredictor` adds what fitted members say, times their shares. A model lists its members
by name, so that another one is a class and a line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import Array, FloatArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.scoring.encoders import Scores
from deepmf.scoring.predictor import Blended, FittedMember as FittedMember, Link, Predictor
from deepmf.storage.model_file import MappedTensors, Tensors, has_values_to_check
from deepmf.storage.parts import Check, Form, Part, below, not_falling, not_negative, positive
from deepmf.training.holdout import HeldOut

BlendPredictor = Predictor

# The largest slope that a model file may hold.
_LARGEST = 1e12

# The sum of stored shares may be this far from 1.
_ROUNDING = 1e-6


class MemberInputs(NamedTuple):
    """What members learn from.

    seen: the entries without the held-out ones; entries: all. These are the same where nothing is
    held out, or where validation entries are given.
    """

    seen: EntryStore
    entries: EntryStore
    held_out: HeldOut | None
    device: Any  # as torch names it: "cpu", or that of a GPU


class Conversion(NamedTuple):
    """The units of a member: how values on the scale are converted to them, and their mean."""

    convert: Callable[[Array], FloatArray] = np.asarray
    centre: float = 0.0

    def keeps(self, values: FloatArray) -> bool:
        """Whether values are said in their own units."""
        return np.array_equal(self.convert(values), values)


class MemberFit(NamedTuple):
    """A fitted member, and what it says of held-out entries without having seen them.

    fitted: given all entries. scores: of held-out entries, given the others; None where nothing is
    held out. Scores with fields are logits, and their fields cutpoints; others are values.
    units: those of values; noise: the standard deviation of their errors.
    blind: returns the member given the other entries, with rows and columns of some entries alone.
    stands_alone: whether it may be the whole blend: others have latents, by which rows are compared.
    usual_share: which it has unless held-out entries say otherwise beyond doubt.
    adds: whether it says residuals, which are added to what others say.
    """

    fitted: FittedMember
    scores: Scores | None
    noise: float = 1.0
    units: Conversion = Conversion()
    blind: Callable[[AxisEntries, AxisEntries], FittedMember] | None = None
    stands_alone: bool = True
    usual_share: float = 0.0
    adds: bool = False

    @property
    def held_out_scores(self) -> Scores:
        """The scores, where entries are held out."""
        assert self.scores is not None
        return self.scores

    @property
    def gives_logits(self) -> bool:
        """Whether the scores are logits, which need no link."""
        return self.scores is not None and self.scores.fields.shape[1] > 0


class Member(Protocol):
    """A member that is not fitted: it has settings alone."""

    def fit(self, inputs: MemberInputs) -> MemberFit | None:
        """Return the fitted member; None where it cannot be fitted."""

    def load(self, content: Any, tensors: Tensors, entries: EntryStore) -> FittedMember:
        """Return the fitted member whose `pack` gave this content and these tensors."""


_MEMBER = Form(
    Part("share", "number", (), positive),
    Part("content", "object"),
    Part(
        "link",
        Form(
            Part("slope", "number", (), positive),
            Part("centre", "number"),
            Part("cutpoints", "number", ("cutpoints",), not_falling, below(_LARGEST)),
            Part("few_count", "number", (), not_negative, below(_LARGEST)),
            Part(
                "support",
                "number",
                ("support",),
                not_falling,
                Check(
                    "have a value more than cutpoints, or none",
                    lambda support, sizes: support.size in (0, sizes["cutpoints"] + 1),
                ),
            ),
        ),
        optional=True,
    ),
    Part("adds", "flag", optional=True),
)


def load_members(
    content: Any,
    tensors: Tensors,
    entries: EntryStore,
    members: Mapping[str, Member],
    *,
    n_cutpoints: int,
) -> dict[str, Blended]:
    """Return the members that `BlendPredictor.pack` described; anything else raises
    `BadModelFile`."""
    described = _BLEND.read(content)["members"]
    unknown = described.keys() - members.keys()
    if unknown or not described:
        member_names = ", ".join(members)
        raise BadModelFile(
            f"the stored members must be among {member_names}; got {list(described)}"
        )
    width = entries.scale.high - entries.scale.low or 1.0
    blended = {}
    for name in described:
        stored = _MEMBER.read(described[name], cutpoints=n_cutpoints)
        link = None
        if stored["link"] is not None:
            lists = ("cutpoints", "support")
            link = Link(
                **stored["link"] | {field: tuple(stored["link"][field].tolist()) for field in lists}
            )
            if link.slope >= _LARGEST / width:
                raise BadModelFile(
                    f"the stored slope of {name} must be below {_LARGEST / width:g}; got {link.slope:g}"
                )
        member_tensors = select_tensors(tensors, name)
        fitted = members[name].load(stored["content"], member_tensors, entries)
        blended[name] = Blended(fitted, stored["share"], link, bool(stored["adds"]))
    total = sum(member.share for member in blended.values())
    total_of_others = sum(member.share for member in blended.values() if not member.adds)
    if not any(math.isclose(share, 1.0, abs_tol=_ROUNDING) for share in (total, total_of_others)):
        raise BadModelFile("the stored shares of the members must add up to 1")
    return blended


_BLEND = Form(Part("members", "object"))


def select_tensors(tensors: Tensors, name: str) -> Tensors:
    """Return the tensors of a member, without its name."""
    member_tensors = {
        key.removeprefix(f"{name}."): tensor
        for key, tensor in tensors.items()
        if key.startswith(f"{name}.")
    }
    return member_tensors if has_values_to_check(tensors) else MappedTensors(member_tensors)
