"""Plots: the axes hold the data, text of users stays text, and the same plot gives the same
bytes."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axis import Axis

from deepmf import plots
from deepmf.errors import MissingDependency

EVIL = "<script>alert(1)</script> $x^2$ \x00 half \ud800 $"
SHOWN = "<script>alert(1)</script> $x^2$ \ufffd half \ufffd $"


def texts_of(svg: str) -> list[str]:
    return [
        element.text or ""
        for element in ElementTree.fromstring(svg).iter()
        if element.tag.endswith("text")
    ]


def names_of(axis: Axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_bars_hold_the_numbers_their_margins_and_labels() -> None:
    series = {"model": [1.0, 2.0], "means": [3.0, 4.0]}
    margins = {"model": [0.1, None], "means": [0.2, 0.3]}
    ax = plots.plot_bars(["I", "all"], series, margins=margins, x_label="area", y_label="RMSE")
    assert [bar.get_height() for bar in ax.patches] == [1.0, 2.0, 3.0, 4.0]
    ends = [
        line[:, 1].tolist()
        for drawn in ax.containers[1::2]
        for line in drawn[2][0].get_segments()
        if np.size(line)
    ]
    assert ends == [pytest.approx(pair) for pair in ([0.9, 1.1], [2.8, 3.2], [3.7, 4.3])]
    assert (ax.get_xlabel(), ax.get_ylabel(), names_of(ax.xaxis)) == ("area", "RMSE", ["I", "all"])
    svg = plots.render_svg(ax, title="errors")
    assert {"model", "means", "I", "all", "RMSE", "area"} <= set(texts_of(svg))


def test_counts_stand_below_the_names_of_groups() -> None:
    assert names_of(
        plots.plot_bars(["I", "all"], {"model": [1.0, 2.0]}, counts=[900, 20_000]).xaxis
    ) == ["I\n900", "all\n20k"]
    assert names_of(
        plots.plot_cold_start(["0", "a\nb"], {"model": [1.0, 2.0]}, counts=[5, 6]).xaxis
    ) == ["0\n5", "a b\n6"]


def test_a_long_name_may_stand_between_short_ones() -> None:
    metrics = ["NDCG", "recall", "precision", "MRR", "MAP", "hit rate"]
    assert names_of(plots.plot_bars(metrics, {"model": [0.5] * 6}).xaxis) == metrics


def test_names_that_do_not_fit_are_left_out() -> None:
    names = [f"level {number}" for number in range(60)]
    shown = names_of(plots.plot_bars(names, {"n": list(range(60))}).xaxis)
    assert shown == names[:: names.index(shown[1])]
    assert 2 < len(shown) < 10


def test_a_plot_is_drawn_on_the_axes_it_is_given() -> None:
    first, second = plots.make_axes(1, 2)
    assert plots.plot_bars(["a"], {"n": [1.0]}, second) is second
    assert not first.patches


def test_cold_start_joins_groups_in_order_and_shows_all_margins() -> None:
    ax = plots.plot_cold_start(
        ["0", "1–4", "5+"], {"model": [0.9, 0.8, 0.7]}, margins={"model": [0.5, 0.1, None]}
    )
    (drawn,) = ax.containers
    assert drawn[0].get_xydata().tolist() == [[0, 0.9], [1, 0.8], [2, 0.7]]
    low, high = ax.get_ylim()
    assert low <= 0.4 and high >= 1.4
    assert names_of(ax.xaxis) == ["0", "1–4", "5+"]


@pytest.mark.slow
def test_many_lines_differ_in_colour_marker_or_dashes() -> None:
    curves = {f"method {number}": ([1, 10, 100], [1.0, number, 3.0]) for number in range(21)}
    ax = plots.plot_lines(curves, log_x=True, y_limits=(0, 5))
    styles = {
        (line.get_color(), line.get_marker(), line.get_linestyle())
        for line in (c[0] for c in ax.containers)
    }
    assert len(styles) == 21
    assert (ax.get_xscale(), ax.get_ylim()) == ("log", (0, 5))
    assert {"10", "100"} <= set(texts_of(plots.render_svg(ax, title="lines")))


def test_shared_axes_hold_the_data_of_all() -> None:
    axes = plots.make_axes(1, 2, sharey=True)
    plots.plot_lines({"a": ([0, 1], [0.1, 0.2])}, axes[0])
    plots.plot_lines({"a": ([0, 1], [0.1, 0.9])}, axes[1])
    assert axes[0].get_ylim()[1] >= 0.9


def test_calibration_has_a_point_for_each_bin_and_the_diagonal() -> None:
    ax = plots.plot_calibration([0.1, 0.5], [0.0, 0.6], [400, 100], margins=[0.1, 0.05])
    diagonal, curve = ax.lines[:2]
    assert np.array(diagonal.get_xydata()).tolist() == [[0, 0], [1, 1]]
    assert np.array(curve.get_xydata()).tolist() == [[0.1, 0.0], [0.5, 0.6]]
    (bars,) = ax.containers
    large, small = ax.collections[-1].get_sizes()
    assert large > small
    assert [line[:, 1].tolist() for line in bars[2][0].get_segments()] == [
        pytest.approx([0.0, 0.1]),
        pytest.approx([0.55, 0.65]),
    ]


@pytest.mark.slow
def test_confusion_is_deeper_where_shares_are_larger() -> None:
    shares = np.array([[0.999, 0.001], [0.0, 0.5]])
    ax = plots.plot_confusion(shares, ["1", "2"])
    cells = {patch.get_facecolor()[3]: patch.get_path().vertices for patch in ax.patches}
    assert sorted(cells) == pytest.approx([0.025, 0.275, 0.5])
    # the lower left
    assert np.array(cells[max(cells)]).mean(axis=0).round() == pytest.approx([0, 0])
    assert {(text.get_position(), text.get_text()) for text in ax.texts} == {
        ((0, 0), "100"),
        ((1, 0), "<1"),
        ((1, 1), "50"),
    }
    many = plots.plot_confusion(np.full((64, 64), 1 / 64), [str(level) for level in range(64)])
    assert not many.texts
    assert len(plots.render_svg(many, title="many levels")) < 300_000


def luminance(colour: list[float]) -> float:
    """Return the relative luminance of a colour, as in WCAG 2."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour
    ]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("scheme", [0, 1])
def test_every_number_can_be_read_in_its_cell(scheme: int) -> None:
    def parts(name: str) -> list[float]:
        return [int(plots.COLOURS[name][scheme][at : at + 2], 16) / 255 for at in (1, 3, 5)]

    ax = plots.plot_confusion(np.arange(1, 21).reshape(4, 5) / 20, list("12345"))
    light = {colours[0]: name for name, colours in plots.COLOURS.items()}
    for text, opacity in zip(ax.texts, np.arange(1, 21) / 40, strict=True):
        pairs = zip(parts("one"), parts("paper"), strict=True)
        cell = luminance([opacity * own + (1 - opacity) * paper for own, paper in pairs])
        low, high = sorted((cell, luminance(parts(light[str(text.get_color())]))))
        assert (high + 0.05) / (low + 0.05) >= 4.5, text.get_text()


def test_boundaries_cut_the_scale_twice() -> None:
    ax = plots.plot_boundaries(
        np.array([1.0, 2.0, 3.0]), [1.5, 2.5], [1.2, 2.9], np.array([1.0, 5.0, 2.0])
    )
    strips = [
        (patch.get_x(), patch.get_width()) for patch in ax.patches if hasattr(patch, "get_width")
    ]
    ends = [(1, 0.5), (1.5, 1), (2.5, 0.5), (1, 0.2), (1.2, 1.7), (2.9, 0.1)]
    assert strips == [pytest.approx(pair) for pair in ends]
    assert names_of(ax.xaxis) == ["1", "2", "3"]


def test_comparison_has_a_point_and_its_spread_for_each_name() -> None:
    series = {"ours": {"a": 0.5, "b": 0.25}, "published": {"b": 0.75}}
    ax = plots.plot_comparison(["a", "b"], series, spreads={"ours": {"a": 0.125}})
    points = [drawn[0].get_xydata().tolist() for drawn in ax.containers]
    assert points == [[[0.5, 0], [0.25, 1]], [[0.75, 1]]]
    (bars,) = ax.containers[0][2]
    assert bars.get_segments()[0][:, 0].tolist() == [0.375, 0.625]
    assert ax.yaxis_inverted()
    assert names_of(ax.yaxis) == ["a", "b"]


def test_text_of_users_is_shown_as_it_is() -> None:
    ax = plots.plot_bars([EVIL], {EVIL: [1.0], "b": [2.0]}, x_label=EVIL)
    plots.add_title(ax, EVIL)
    svg = plots.render_svg(ax, title=EVIL)
    assert "<script" not in svg
    assert texts_of(svg).count(SHOWN) == 4  # the group, the legend, the label and the title
    assert ElementTree.fromstring(svg).attrib["aria-label"] == SHOWN


def test_text_is_not_parsed_as_math_on_axes_of_another_style() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    plots.plot_comparison(["$x^2$"], {"a": {"$x^2$": 1.0}}, figure.subplots())
    figure.canvas.draw()
    assert names_of(figure.axes[0].yaxis) == ["$x^2$"]
    assert not figure.axes[0].get_yticklabels()[0].get_parse_math()


def test_a_file_is_the_same_bytes_twice_and_describes_itself(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        plots.save_svg(
            plots.plot_cold_start(["1", "2"], {"漢字": [1, 2]}), tmp_path / name, title="R & D"
        )
    written = (tmp_path / "a.svg").read_bytes()
    assert written == (tmp_path / "b.svg").read_bytes()
    root = ElementTree.fromstring(written)
    assert root[0].text == "R & D"
    assert "prefers-color-scheme: dark" in (root[1].text or "")
    assert b"matplotlib" not in written.lower()


def test_ids_of_two_plots_on_a_page_differ() -> None:
    drawn = [
        plots.render_svg(plots.plot_bars(["a"], {"n": [1]}), title=title)
        for title in ("one", "two")
    ]
    ids = [
        element.attrib["id"]
        for svg in drawn
        for element in ElementTree.fromstring(svg).iter()
        if "id" in element.attrib
    ]
    assert ids and len(set(ids)) == len(ids)


def test_the_style_of_the_caller_is_left_alone() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    plots.render_svg(plots.plot_bars(["a"], {"n": [1]}), title="bars")
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependency, match="matplotlib"):
        plots.plot_bars(["a"], {"n": [1]})


@pytest.mark.slow
def test_matplotlib_is_imported_late_and_pyplot_never() -> None:
    code = (
        "import sys, deepmf, deepmf.plots as plots, deepmf.models.means, deepmf.report;"
        "assert 'matplotlib' not in sys.modules;"
        "plots.render_svg(plots.plot_bars(['a'], {'n': [1]}), title='t');"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
