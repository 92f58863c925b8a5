"""The chart of an explanation: a bar for each entry, and each feature, that pulled a prediction up or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from deepmf.charts.axes import CHARACTER
from deepmf.charts.chart import Chart
from deepmf.charts.effect_bars import effect_bars, signed
from deepmf.charts.wording import amount


class Explained(Protocol):
    """What an explanation holds: where entries stand, their values and effects, largest first, and the prediction.

    features: the name, the value and the effect of each feature, largest first.
    """

    @property
    def labels(self) -> npt.NDArray[Any]: ...
    @property
    def values(self) -> npt.NDArray[Any]: ...
    @property
    def effects(self) -> npt.NDArray[Any]: ...
    @property
    def prediction(self) -> float: ...
    @property
    def features(self) -> Sequence[tuple[str, str, float]]: ...


def explanation_chart(found: Explained, *, row: Any, column: Any, width: float = 440.0) -> Chart:
    """Return a bar for each entry, then for each feature, of an explanation; the largest effects of both on top.

    A `row` of None has no label.
    """
    longest = int(0.4 * width / (1.1 * CHARACTER))  # of the names, which leave most of the width to the bars
    names = [
        _named(label, f" ({value:g})", longest)
        for label, value in zip(found.labels.tolist(), found.values.tolist(), strict=True)
    ]
    names += [_named(f"{name}: {value}", "", longest) for name, value, _ in found.features]
    effects = [*found.effects.tolist(), *(effect for _, _, effect in found.features)]
    told = "; ".join(f"{name} {signed(effect)}" for name, effect in zip(names, effects, strict=True))
    causes = "entries and features" if found.features else "entries"
    who = "a new row" if row is None else str(row)
    return effect_bars(
        names,
        effects,
        title=f"Effects of {causes} on the prediction of {amount(found.prediction)} for {who} and {column}: {told}",
        x_label="effect on the prediction",
        width=width,
    )


def _named(label: Any, value: str, longest: int) -> str:
    """Return a label and the value there; a label that is too long is cut."""
    whole, room = str(label), longest - len(value)
    return f"{whole if len(whole) <= room else f'{whole[: room - 1]}…'}{value}"
