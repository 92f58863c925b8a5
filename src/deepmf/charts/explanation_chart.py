"""The chart of an explanation: a bar for each entry, and for each feature, that pulled a prediction up or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from deepmf.charts.axes import CHARACTER
from deepmf.charts.chart import Chart
from deepmf.charts.effect_bars import effect_bars, signed
from deepmf.charts.wording import amount


class ExplainedFeature(Protocol):
    """What an explanation says of a feature: its name, its value as text, and its effect."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> float: ...


class Explained(Protocol):
    """What an explanation holds: where entries stand, their values and effects, largest first, and the prediction."""

    @property
    def labels(self) -> npt.NDArray[Any]: ...
    @property
    def values(self) -> npt.NDArray[Any]: ...
    @property
    def effects(self) -> npt.NDArray[Any]: ...
    @property
    def prediction(self) -> float: ...
    @property
    def features(self) -> Sequence[ExplainedFeature]: ...


def explanation_chart(found: Explained, *, row: Any, column: Any, width: float = 440.0) -> Chart:
    """Return a bar for each entry of an explanation, the largest effect on top, and then for each feature.

    A `row` of None has no label.
    """
    longest = int(0.4 * width / (1.1 * CHARACTER))  # of the names, which leave most of the width to the bars
    names = [
        _named(label, f" ({value:g})", longest)
        for label, value in zip(found.labels.tolist(), found.values.tolist(), strict=True)
    ]
    names += [_named(feature.name, f": {feature.value}", longest) for feature in found.features]
    effects = found.effects.tolist() + [feature.effect for feature in found.features]
    told = "; ".join(f"{name} {signed(effect)}" for name, effect in zip(names, effects, strict=True))
    who = "a new row" if row is None else str(row)
    what = "entries and features" if found.features else "entries"
    return effect_bars(
        names,
        effects,
        title=f"Effects of {what} on the prediction of {amount(found.prediction)} for {who} and {column}: {told}",
        x_label="effect on the prediction",
        width=width,
    )


def _named(label: Any, value: str, longest: int) -> str:
    """Return a label and the value there; what is too long is cut, the label first."""
    value = value if len(value) <= longest - 8 else f"{value[: longest - 9]}…"
    whole, room = str(label), longest - len(value)
    return f"{whole if len(whole) <= room else f'{whole[: room - 1]}…'}{value}"
