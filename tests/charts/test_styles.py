"""Styles: series that can be told apart, without their colour too."""

from deepmf.charts.chart import style_sheet
from deepmf.charts.styles import numbered


def test_42_series_differ() -> None:
    styles = [numbered(number) for number in range(42)]
    assert len(set(styles)) == 42
    assert len({style.name for style in styles[:21]}) == 21
    assert len({style.shape for style in styles[:7]}) == len({style.name for style in styles[:7]}) == 7


def test_the_style_sheet_knows_every_class() -> None:
    for number in range(21):
        for name in numbered(number).name.split():
            assert f".{name} " in style_sheet()


def test_points_have_a_tip_and_a_shape() -> None:
    assert numbered(0).point(1, 2, "<tip>") == (
        '<circle cx="1" cy="2" r="4" class="dot c1"><title>&lt;tip&gt;</title></circle>'
    )
    assert numbered(1).point(1, 2).startswith('<path d="M1.0 2.0m-3.4 -3.4h6.8')
