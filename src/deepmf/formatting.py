"""Numbers and times as text for messages, tables, pages and plots."""

from __future__ import annotations

import math

_PERCENT_SIGN = "\N{NO-BREAK SPACE}%"


def format_count(number: float) -> str:
    """Return a whole number with separators: 1,000,209."""
    return f"{number:,.0f}"


def format_quantity(number: int, noun: str) -> str:
    """Return a number with its noun: 1 entry, 2 columns."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{format_count(number)} {noun if number == 1 else plural}"


def describe_relevant(relevant: float | None) -> str:
    """Return which entries count as liked, by their smallest value; None if all do.

    >>> describe_relevant(4.0), describe_relevant(None)
    ('relevant: at least 4', 'relevant: all entries')
    """
    return "relevant: all entries" if relevant is None else f"relevant: at least {relevant:g}"


def format_amount(number: float | None) -> str:
    """Return a number with three decimals, or four significant digits if it is large or small; a
    dash for None.

    >>> [format_amount(number) for number in (0.86114, 12345.6, 0.000123, None)]
    ['0.861', '1.235e+04', '0.000123', '–']
    """
    if number is None or not math.isfinite(number):
        return "–"
    return f"{number:.3f}" if number == 0 or 0.01 <= abs(number) < 1000 else f"{number:.4g}"


def format_percent(share: float | None, *, digits: int = 1) -> str:
    """Return a share as a percentage with a no-break space: 43.2 %."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{100 * share:.{digits}f}{_PERCENT_SIGN}"


def format_duration(seconds: float) -> str:
    """Return a duration in a suitable unit.

    >>> [format_duration(seconds) for seconds in (3.21, 7, 83.4, 250, 8000)]
    ['3.2 s', '7 s', '83 s', '4 min', '2 h 13 min']
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{f'{seconds:.1f}'.removesuffix('.0')} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def format_difference(number: float, other: float) -> str:
    """Return the relative difference of a number from another: −5.4 %.

    >>> format_difference(0.9, 1.0).split(), format_difference(1.0, 0.0)
    (['−10.0', '%'], '–')
    """
    if other == 0 or not math.isfinite(number / other):
        return "–"
    share = round(100 * (number / other - 1), 1)
    return f"{'+' if share > 0 else '−' if share < 0 else '±'}{abs(share):.1f}{_PERCENT_SIGN}"


def format_short(number: float) -> str:
    """Return a number in short form, as for an axis: 1.5M, 20k, 0.25.

    >>> [format_short(number) for number in (1_500_000, 20_000, 0.25, -3.0, 2.346e12)]
    ['1.5M', '20k', '0.25', '-3', '2.35e+12']
    """
    if 1e4 <= abs(number) < 1e9:
        return f"{number / 1e6:.4g}M" if abs(number) >= 1e6 else f"{number / 1e3:.4g}k"
    return f"{number:.5g}" if 1e-4 <= abs(number) < 1e9 else f"{number:.3g}"
