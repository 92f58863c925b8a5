"""Plots on matplotlib. Every function draws on `ax`, or on a new one, and returns it.

`render_svg` and `save_svg` turn a plot into SVG: the same plot gives the same bytes, text stays
text, and the colours follow the light or dark scheme of the page or of the reader. matplotlib is
imported when something is drawn.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting, import_optional
from deepmf.files import write_atomically
from deepmf.formatting import format_count, format_short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "add_legend",
    "add_note",
    "add_title",
    "make_axes",
    "plot_bars",
    "plot_block",
    "plot_boundaries",
    "plot_calibration",
    "plot_cold_start",
    "plot_comparison",
    "plot_confusion",
    "plot_imputed",
    "plot_lines",
    "plot_missing_patterns",
    "render_svg",
    "save_svg",
]

# On light and on dark paper. c1 to c7 are the colours of Okabe and Ito, which colour-blind readers
# can distinguish.
COLOURS = {
    "paper": ("#ffffff", "#12161b"),
    "ink": ("#1a2129", "#e6eaee"),
    "soft": ("#56616d", "#9aa6b2"),
    "rule": ("#dfe4e9", "#2c353f"),
    "one": ("#0067a8", "#64b5f0"),
    "other": ("#b8500a", "#f2a65a"),
    "c1": ("#0072b2", "#3f97dc"),
    "c2": ("#d55e00", "#f0813f"),
    "c3": ("#009e73", "#2bc496"),
    "c4": ("#cc79a7", "#e2a0c6"),
    "c5": ("#e69f00", "#f2b134"),
    "c6": ("#56b4e9", "#a3dbff"),
    "c7": ("#0a0a0a", "#ffffff"),
}
_LIGHT = {name: light for name, (light, _) in COLOURS.items()}
_INK, _SOFT, _RULE, _PAPER = (_LIGHT[name] for name in ("ink", "soft", "rule", "paper"))
_ONE, _OTHER = _LIGHT["one"], _LIGHT["other"]
_CYCLE = [_LIGHT[f"c{number}"] for number in range(1, 8)]
_MARKERS, _DASHES = "os^DvPX", ("-", "--", ":")

# Text is measured in DejaVu Sans, which comes with matplotlib and is wider than most fonts of
# readers.
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": _RULE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": _SOFT,
    "axes.labelpad": 7,
    "axes.labelsize": 11,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.hspace": 0.06,
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "grid.color": _RULE,
    "legend.borderpad": 0,
    "legend.columnspacing": 1.5,
    "legend.fontsize": 11,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.labelcolor": _SOFT,
    "lines.linewidth": 1.8,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "deepmf",
    "text.color": _INK,
    "text.parse_math": False,  # a column may be called $x^2$
    "xtick.labelcolor": _SOFT,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.labelcolor": _SOFT,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}
_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif'
_CHARACTER = 5.9  # approximate width of a character in points
_BELOW = "\x1f"  # between the lines of a tick label; names of columns may hold any other line break
MOST_WRITTEN = 11  # a heat map of at most this many levels has numbers in its cells
_SHADES = 20  # of a heat map
_MOST_BARS = 12  # of numbers with more different values, the density is drawn
# opacity of a cell, with which the contrast of its text is at least 4.5 on light and dark paper
_DEEPEST = 0.5
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Series = Mapping[str, Sequence[float]]
Margins = Mapping[str, Sequence[float | None]]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _import_matplotlib() -> Any:
    return import_optional("matplotlib", what="plots need matplotlib", install="matplotlib")


def _apply_style(draw: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make a function draw in the style of this module, without changing the style of the
    caller."""

    @wraps(draw)
    def draw_in_style(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with _import_matplotlib().rc_context(_STYLE):
            return draw(*args, **kwargs)

    return draw_in_style


# Axes, legends and ticks


@_apply_style
def make_axes(
    n_rows: int = 1,
    n_columns: int = 1,
    *,
    width: float = 360.0,
    height: float = 220.0,
    **options: Any,
) -> list[Axes]:
    """Return the axes of a new figure, row by row; `width` and `height` of the figure are in
    points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
    return list(figure.subplots(n_rows, n_columns, squeeze=False, **options).flat)


@_apply_style
def add_legend(ax: Axes, *, note: str = "", above: bool = False) -> None:
    """Add the legend of a plot to its figure, below or above all axes, with a note."""
    figure = _get_figure(ax)
    handles, labels = ax.get_legend_handles_labels()
    column = 5 + max((len(label) for label in labels), default=0)
    n_columns = max(
        1, min(len(labels), int(72 * figure.get_figwidth() / (_CHARACTER * 1.15 * column)))
    )
    place: Literal["outside upper left", "outside lower center"]
    place = "outside upper left" if above else "outside lower center"
    figure.legend(
        handles,
        labels,
        loc=place,
        ncols=n_columns,
        title=note or None,
        title_fontproperties={"size": 11},
    )


def add_note(ax: Axes, note: str) -> None:
    """Write a note below all axes of a plot."""
    _get_figure(ax).supxlabel(_clean(note), fontsize=11, color=_SOFT, parse_math=False)


def add_title(ax: Axes, title: str) -> None:
    """Write a title above a plot."""
    ax.set_title(_clean(title), fontsize=11, weight="bold", color=_INK, parse_math=False)


def _get_figure(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def _clean(text: object) -> str:
    """Return text on one line, without characters that XML forbids."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", " ".join(str(text).splitlines()))


def _label(ax: Axes, x: str, y: str) -> None:
    if x:
        ax.set_xlabel(_clean(x), parse_math=False)
    if y:
        ax.set_ylabel(_clean(y), parse_math=False, rotation_mode="anchor")


def _name_ticks(axis: Axis, places: Sequence[float], names: Sequence[str]) -> None:
    """Label ticks with the names of groups; on an x axis, leave out names that do not fit."""
    step = 1
    if axis is axis.axes.xaxis:
        room = 72 * axis.axes.bbox.width / _get_figure(axis.axes).dpi
        spacing = room / len(names)
        widths = [_CHARACTER * max(len(line) for line in name.split(_BELOW)) + 2 for name in names]
        while any(sum(pair) / 2 > step * spacing for pair in pairwise(widths[::step])):
            step += 1
    shown = ["\n".join(map(_clean, name.split(_BELOW))) for name in names]
    axis.set_ticks(list(places)[::step], shown[::step], parse_math=False)


def _add_counts(groups: Sequence[str], counts: Sequence[int]) -> list[str]:
    """Return names of groups with the number of entries of each on a second line, if there are
    any."""
    return [
        f"{group}{_BELOW}{format_short(count)}" for group, count in zip(groups, counts, strict=True)
    ]


def _format_ticks(axis: Axis, *, percent: bool = False, log: bool = False) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if log:
        low, high = axis.get_view_interval()
        wide = math.log10(high / low) > 4
        axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=20))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(
        FuncFormatter(lambda number, _: _format_share(number) if percent else format_short(number))
    )


def _round_limits(ax: Axes, *, from_zero: bool = False) -> None:
    """Let a y axis, shared or not, end in round numbers with a few ticks in between."""
    from matplotlib.ticker import MaxNLocator

    locator = MaxNLocator(
        nbins=max(4, round(1.44 * ax.bbox.height / _get_figure(ax).dpi)), steps=[1, 2, 2.5, 5, 10]
    )
    limits = [axes.dataLim for axes in ax.get_shared_y_axes().get_siblings(ax) if axes.has_data()]
    low = 0.0 if from_zero else min(limits.y0 for limits in limits)
    high = max(limits.y1 for limits in limits)
    ticks = locator.tick_values(low, high if high > low or not from_zero else 1.0)
    ax.set_ylim(ticks[0], ticks[-1])
    ax.yaxis.set_major_locator(locator)


def _format_share(share: float) -> str:
    return f"{format_short(float(f'{100 * share:.3g}'))} %"


def _style_line(number: int, n_series: int) -> dict[str, Any]:
    """Return the colour, marker and dashes of a series: of two, the second is dashed and hollow."""
    if n_series <= 2:
        hollow = {"linestyle": "--", "markerfacecolor": _PAPER} if number else {}
        return {"color": _OTHER if number else _ONE, "marker": "o", "markersize": 6} | hollow
    turn = number // len(_CYCLE)
    return {
        "color": _CYCLE[number % len(_CYCLE)],
        "marker": _MARKERS[(number + turn) % len(_MARKERS)],
        "linestyle": _DASHES[turn % len(_DASHES)],
        "markersize": 6,
    }


# Plots


@_apply_style
def plot_bars(
    groups: Sequence[str],
    series: Series,
    ax: Axes | None = None,
    *,
    margins: Margins | None = None,
    counts: Sequence[int] = (),
    x_label: str = "",
    y_label: str = "",
    percent: bool = False,
) -> Axes:
    """Draw bars in groups, with error bars if there are margins, and the counts of the groups below
    their names."""
    axes = ax or make_axes()[0]
    width = 0.8 * min(1.0, len(groups) / 4) / len(series)
    for order, (name, numbers) in enumerate(series.items()):
        places = np.arange(len(groups)) + (order - (len(series) - 1) / 2) * width
        spreads = (margins or {}).get(name) or [None] * len(groups)
        hollow = {"facecolor": (_OTHER, 0.14), "edgecolor": _OTHER, "linewidth": 1.2}
        fill: Any = hollow if order else {"facecolor": _ONE}
        axes.bar(places, numbers, 0.92 * width, label=_clean(name), **fill)
        if margins:
            axes.errorbar(
                places,
                numbers,
                np.array(spreads, float),
                fmt="none",
                ecolor=_INK,
                elinewidth=1.2,
                capsize=3,
                capthick=1.2,
            )
    axes.set_xlim(-0.5, len(groups) - 0.5)
    _round_limits(axes, from_zero=True)
    _label(axes, x_label, y_label)
    _name_ticks(axes.xaxis, range(len(groups)), _add_counts(groups, counts) if counts else groups)
    _format_ticks(axes.yaxis, percent=percent)
    if ax is None and len(series) > 1:
        add_legend(axes, above=True)
    return axes


@_apply_style
def plot_lines(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    ax: Axes | None = None,
    *,
    margins: Margins | None = None,
    x_label: str = "",
    y_label: str = "",
    log_x: bool = False,
    log_y: bool = False,
    y_limits: tuple[float, float] | None = None,
    groups: Sequence[str] = (),
    percent: bool = False,
) -> Axes:
    """Draw a curve through (places, numbers) for each name; `groups` are names of the places 0, 1,
    2, ..."""
    from matplotlib.transforms import ScaledTranslation

    axes = ax or make_axes()[0]
    # error bars at one place are drawn side by side
    step = min(3.0, 28.0 / len(curves)) if margins else 0.0
    for number, (name, (places, numbers)) in enumerate(curves.items()):
        spreads = (margins or {}).get(name) or [None] * len(numbers)
        aside = ScaledTranslation(
            step * (number - (len(curves) - 1) / 2) / 72, 0, _get_figure(axes).dpi_scale_trans
        )
        axes.errorbar(
            places,
            numbers,
            np.array(spreads, float) if margins else None,
            label=_clean(name),
            transform=axes.transData + aside,
            elinewidth=1.2,
            capsize=3,
            markevery=1 if len(numbers) <= 16 else len(numbers) // 10,
            **_style_line(number, len(curves)),
        )
        ends = [
            np.array(numbers, dtype=float) + sign * np.nan_to_num(np.array(spreads, float))
            for sign in (-1, 1)
        ]
        # without the shift
        axes.update_datalim(np.column_stack([np.tile(places, 2), np.concatenate(ends)]))
    axes.autoscale_view()
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    if y_limits is not None:
        axes.set_ylim(*y_limits)
    elif not log_y:
        _round_limits(axes)
    _label(axes, x_label, y_label)
    _format_ticks(axes.xaxis, log=log_x)
    _format_ticks(axes.yaxis, percent=percent, log=log_y)
    if groups:
        axes.set_xlim(-0.5, len(groups) - 0.5)
        _name_ticks(axes.xaxis, range(len(groups)), groups)
    if ax is None and len(curves) > 1:
        add_legend(axes, above=len(curves) == 2)
    return axes


def plot_cold_start(
    groups: Sequence[str],
    errors: Series,
    ax: Axes | None = None,
    *,
    margins: Margins | None = None,
    counts: Sequence[int] = (),
    x_label: str = "entries that describe the row",
    y_label: str = "RMSE",
    percent: bool = False,
) -> Axes:
    """Draw the error of each model from rows with few entries to rows with many; `counts` are test
    entries."""
    curves = {name: (range(len(groups)), numbers) for name, numbers in errors.items()}
    shown, x_label = (
        (_add_counts(groups, counts), f"{x_label}, and test entries")
        if counts
        else (groups, x_label)
    )
    return plot_lines(
        curves, ax, margins=margins, x_label=x_label, y_label=y_label, groups=shown, percent=percent
    )


@_apply_style
def plot_calibration(
    forecast: Sequence[float],
    observed: Sequence[float],
    counts: Sequence[int],
    ax: Axes | None = None,
    *,
    margins: Sequence[float | None] = (),
    x_label: str = "forecast probability",
    y_label: str = "observed frequency",
) -> Axes:
    """Draw a reliability diagram; the size of a point shows its number of forecasts."""
    axes = ax or make_axes(height=340.0)[0]
    axes.plot([0, 1], [0, 1], color=_SOFT, linewidth=1, linestyle=(0, (3, 3)))
    axes.plot(forecast, observed, color=_ONE)
    if margins:
        heights, spreads = np.array(observed), np.array(margins, float)
        inside = np.minimum(spreads, heights), np.minimum(spreads, 1 - heights)
        axes.errorbar(
            forecast, observed, inside, fmt="none", ecolor=_ONE, elinewidth=1.2, capsize=3
        )
    radii = 3 + 7 * np.sqrt(np.array(counts) / max(counts))
    axes.scatter(
        forecast, observed, (2 * radii) ** 2, color=_ONE, alpha=0.75, linewidths=0, clip_on=False
    )
    axes.set(xlim=(-0.04, 1.02), ylim=(-0.04, 1.02))  # points at 0 keep clear of the tick labels
    _label(axes, x_label, y_label)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([0, 0.2, 0.4, 0.6, 0.8, 1])
        _format_ticks(axis, percent=True)
    return axes


@_apply_style
def plot_confusion(
    shares: npt.NDArray[np.floating], levels: Sequence[str], ax: Axes | None = None
) -> Axes:
    """Draw shares (true level, predicted level) as a heat map; the largest share has the deepest
    colour."""
    axes = ax or make_axes(height=340.0)[0]
    n_levels = len(levels)
    full = float(shares.max()) or 1.0
    shades = np.minimum(np.ceil(shares / full * _SHADES), _SHADES).astype(int)
    for shade in np.unique(shades[shades > 0]).tolist():
        _fill_cells(axes, shades == shade, (_ONE, _DEEPEST * shade / _SHADES))
    if n_levels <= MOST_WRITTEN:
        for i, j in np.argwhere(shares > 0).tolist():
            text = "<1" if shares[i, j] < 0.01 else f"{100 * shares[i, j]:.0f}"
            axes.text(j, i, text, ha="center", va="center_baseline", color=_INK, weight="bold")
    axes.set(xlim=(-0.5, n_levels - 0.5), ylim=(-0.5, n_levels - 0.5))
    axes.grid(visible=False)
    axes.spines[:].set_visible(True)
    _label(axes, "predicted level", "true level")
    _name_ticks(axes.xaxis, range(n_levels), levels)
    step = math.ceil(n_levels / 12)
    _name_ticks(axes.yaxis, range(0, n_levels, step), levels[::step])
    return axes


def _fill_cells(ax: Axes, cells: npt.NDArray[np.bool_], colour: Any, *, side: float = 1.0) -> None:
    """Fill the squares of some cells (rows, columns) by a single path, which keeps the file
    small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    square = 0.5 * side * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]])
    outlines = [Outline(square + cell[::-1], closed=True) for cell in np.argwhere(cells)]
    if outlines:
        ax.add_patch(
            PathPatch(Outline.make_compound_path(*outlines), facecolor=colour, edgecolor="none")
        )


@_apply_style
def plot_block(
    values: npt.NDArray[np.floating],
    is_observed: npt.NDArray[np.bool_],
    ax: Axes | None = None,
    *,
    x_label: str = "columns",
    y_label: str = "rows",
) -> Axes:
    """Draw values (rows, columns) as a heat map, in which large values have deep colours, and
    those that are not observed another colour."""
    n_rows, n_columns = values.shape
    axes = ax or make_axes(height=80.0 + 11.0 * n_rows)[0]
    low, high = float(values.min()), float(values.max())
    shades = 1 + np.rint((values - low) / ((high - low) or 1.0) * (_SHADES - 1)).astype(int)
    for shade in np.unique(shades).tolist():
        for colour, are_drawn in ((_ONE, is_observed), (_OTHER, ~is_observed)):
            _fill_cells(axes, (shades == shade) & are_drawn, (colour, shade / _SHADES), side=0.92)
    axes.set(xlim=(-0.5, n_columns - 0.5), ylim=(n_rows - 0.5, -0.5), xticks=[], yticks=[])
    axes.grid(visible=False)
    _label(axes, x_label, y_label)
    return axes


def plot_imputed(
    observed: npt.ArrayLike, imputed: npt.ArrayLike, ax: Axes | None = None, *, x_label: str = ""
) -> Axes:
    """Draw the values of a column, observed beside imputed: shares of categories and levels, or
    densities of numbers.

    `deepmf.sklearn.imputed_values` returns both. Numbers of more than twelve different values have
    densities.
    """
    values_of = {"observed": np.asarray(observed), "imputed": np.asarray(imputed)}
    together = np.concatenate([values.ravel() for values in values_of.values()])
    if together.size == 0:
        raise BadSetting("there are no values to draw")
    are_numbers = all(values.dtype.kind in "fiub" for values in values_of.values())
    levels = np.unique(together if are_numbers else together.astype(str))
    if are_numbers and levels.size > _MOST_BARS:
        from scipy.stats import gaussian_kde

        low, high = float(levels[0]), float(levels[-1])
        places = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), 200)
        several = {
            name: values.astype(float)
            for name, values in values_of.items()
            if np.unique(values).size > 1
        }
        curves = {
            name: (places.tolist(), gaussian_kde(values)(places).tolist())
            for name, values in several.items()
        }
        return plot_lines(curves, ax, x_label=x_label, y_label="density")
    shares = {
        name: [
            float(np.mean(values.astype(levels.dtype) == level)) if values.size else 0.0
            for level in levels
        ]
        for name, values in values_of.items()
    }
    names = [format_short(float(level)) if are_numbers else str(level) for level in levels]
    return plot_bars(names, shares, ax, x_label=x_label, y_label="share of values", percent=True)


@_apply_style
def plot_missing_patterns(
    columns: Sequence[str],
    missing: npt.NDArray[np.bool_],
    counts: Sequence[int],
    ax: Axes | None = None,
    *,
    most: int = 30,
) -> Axes:
    """Draw which columns are missing together: a line for each pattern, with its number of rows.

    `deepmf.sklearn.missing_patterns` returns columns, missing (patterns, columns) and counts. Of
    more than `most` patterns, the first are drawn.
    """
    shown = np.asarray(missing, dtype=bool)[:most]
    n_patterns, n_columns = shown.shape
    axes = ax or make_axes(height=min(80.0 + 24.0 * n_patterns, 800.0))[0]
    _fill_cells(axes, shown, _OTHER, side=0.92)
    _fill_cells(axes, ~shown, _RULE, side=0.92)
    axes.set(xlim=(-0.5, n_columns - 0.5), ylim=(n_patterns - 0.5, -0.5))
    axes.grid(visible=False)
    _label(axes, "column (coloured: missing)", "rows with the pattern")
    _name_ticks(axes.xaxis, range(n_columns), [str(name) for name in columns])
    _name_ticks(
        axes.yaxis, range(n_patterns), [format_count(int(count)) for count in list(counts)[:most]]
    )
    if len(missing) > most:
        add_note(axes, f"{len(missing) - most} more patterns are not shown")
    return axes


@_apply_style
def plot_boundaries(
    levels: npt.NDArray[np.floating],
    uniform: Sequence[float],
    learned: Sequence[float],
    scores: npt.NDArray[np.floating],
    ax: Axes | None = None,
) -> Axes:
    """Draw uniform and learned boundaries between levels under a histogram of scores (bins,)."""
    axes = ax or make_axes(height=240.0)[0]
    low, high = float(levels[0]), float(levels[-1])
    base, thickness = 1.15, 0.32
    heights = base + 0.9 * scores / max(float(scores.max()), 1.0)
    axes.stairs(
        heights,
        np.linspace(low, high, scores.size + 1),
        baseline=base,
        fill=True,
        color=_SOFT,
        alpha=0.3,
    )
    axes.text(low, base + 0.92, "scores of the test entries", color=_SOFT, va="bottom")
    # points for each unit of the scale
    room = 72 * axes.bbox.width / _get_figure(axes).dpi / (high - low)
    for name, boundaries, bottom, colour in (
        ("uniform", uniform, 0.62, _OTHER),
        ("learned", learned, 0.0, _ONE),
    ):
        axes.text(low, bottom + thickness + 0.03, name, color=_SOFT, va="bottom")
        for number, (start, end) in enumerate(pairwise([low, *boundaries, high])):
            level = format_short(levels[number])
            shade = (colour, 0.38 if number % 2 else 0.18)
            axes.barh(
                bottom,
                end - start,
                thickness,
                start,
                align="edge",
                facecolor=shade,
                edgecolor=_PAPER,
                linewidth=1.5,
            )
            if (end - start) * room > 7 * len(level) + 4:
                axes.text(
                    (start + end) / 2,
                    bottom + thickness / 2,
                    level,
                    ha="center",
                    va="center_baseline",
                )
    if levels.size <= 20:  # uniform boundaries for comparison with the learned ones
        axes.vlines(
            uniform, -0.04, thickness + 0.04, color=_SOFT, linewidth=1, linestyle=(0, (3, 3))
        )
    axes.set(xlim=(low, high), ylim=(-0.08, base + 1.1))
    axes.grid(visible=False)
    axes.yaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    _name_ticks(axes.xaxis, levels.tolist(), [format_short(level) for level in levels])
    _label(axes, "score, in the units of the scale", "")
    return axes


@_apply_style
def plot_comparison(
    names: Sequence[str],
    series: Mapping[str, Mapping[str, float]],
    ax: Axes | None = None,
    *,
    spreads: Mapping[str, Mapping[str, float]] | None = None,
    x_label: str = "RMSE",
) -> Axes:
    """Draw a line for each name, from the top, with a point and its spread for each series."""
    beside = _CHARACTER * 1.08 * max(map(len, names))
    axes = ax or make_axes(width=420.0 + beside, height=26.0 * len(names) + 52)[0]
    for number, (title, numbers) in enumerate(series.items()):
        colour = _OTHER if number else _ONE
        errors = (spreads or {}).get(title, {})
        axes.errorbar(
            list(numbers.values()),
            [names.index(name) for name in numbers],
            xerr=[errors.get(name, math.nan) for name in numbers],
            fmt="o",
            color=colour,
            markerfacecolor="none" if number else colour,
            elinewidth=1.2,
            capsize=3,
            label=_clean(title),
        )
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.grid(visible=True, axis="both")
    axes.locator_params(axis="x", nbins=6 if axes.bbox.width > 250 else 4)
    axes.tick_params(axis="y", labelcolor=_INK)
    _label(axes, x_label, "")
    _format_ticks(axes.xaxis)
    _name_ticks(axes.yaxis, range(len(names)), names)
    if ax is None and len(series) > 1:
        add_legend(axes)
    return axes


# SVG


def save_svg(ax: Axes, path: str | os.PathLike[str], *, title: str) -> None:
    """Write the whole figure of a plot to an SVG file; `title` is its alternative text."""
    svg = render_svg(ax, title=title, as_file=True).encode()
    write_atomically(path, lambda temporary: temporary.write_bytes(svg))


def render_svg(ax: Axes, *, title: str, as_file: bool = False) -> str:
    """Return the whole figure of a plot as SVG, for a page with the CSS of `colour_rules()` or for
    a file."""
    buffer = io.StringIO()
    with _import_matplotlib().rc_context(_STYLE), warnings.catch_warnings():
        # the font of the reader may have it
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        _get_figure(ax).savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    title = _clean(title)
    _tidy(root, prefix=f"p{hashlib.sha256((title + buffer.getvalue()).encode()).hexdigest()[:10]}-")
    size = root.attrib["viewBox"].split()[2:]
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-label": title,
        "stroke-linejoin": "round",
    }
    if as_file:
        root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "width": size[0], "height": size[1]}
        root.attrib["font-family"] = _FONT
        paper = ElementTree.Element(
            "rect", {"width": "100%", "height": "100%", "style": "fill: var(--paper)"}
        )
        parts = [ElementTree.Element("title"), ElementTree.Element("style"), paper]
        parts[0].text, parts[1].text = title, colour_rules()
        root[:0] = parts
    return ElementTree.tostring(root, encoding="unicode") + "\n" * as_file


def _tidy(root: ElementTree.Element, *, prefix: str) -> None:
    """Turn colours into variables, make ids unique, and drop invisible elements."""
    variables = {light: f"var(--{name}, {light})" for name, light in _LIGHT.items()}
    for parent in list(root.iter()):
        parent.tag = parent.tag.rpartition("}")[2]
        parent[:] = [
            child for child in parent if child.tag.rpartition("}")[2] not in ("metadata", "style")
        ]
        if parent.tag != "text" and parent.text and parent.text.isspace():
            parent.text = None
        parent.tail = None
        attributes = parent.attrib
        attributes.pop(
            "transform" if attributes.get("transform", "").startswith("rotate(-0 ") else "", None
        )
        if "style" in attributes:
            style = re.sub(r"font-family: [^;]*(; |$)", "", attributes["style"])
            attributes["style"] = re.sub(
                "#[0-9a-f]{6}", lambda found: variables.get(found[0], found[0]), style
            )
        if size := re.search(r"font-size: ([\d.]+)px; ?", attributes.get("style", "")):
            attributes["style"] = attributes["style"].replace(size[0], "")
            attributes["font-size"] = size[1]  # as an attribute, which a style sheet can override
        if "d" in attributes:
            attributes["d"] = " ".join(re.sub(r"(\.\d\d)\d+", r"\1", attributes["d"]).split())
        if "clip-path" in attributes:
            attributes["clip-path"] = attributes["clip-path"].replace("#", f"#{prefix}")
        for name in [name for name in attributes if name.endswith("}href")]:
            attributes["href"] = attributes.pop(name).replace("#", f"#{prefix}")
        name = attributes.pop("id", "")
        if parent.tag != "g" and name:
            attributes["id"] = prefix + name


def colour_rules() -> str:
    """Return CSS with the colours of plots, light or dark like the system of the reader."""
    light, dark = (
        " ".join(f"--{name}: {pair[scheme]};" for name, pair in COLOURS.items())
        for scheme in (0, 1)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
