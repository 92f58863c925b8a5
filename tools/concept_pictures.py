"""Draw the pictures of the docs: the four areas, extension, levels and boundaries, OrdinalDMF,
three orders of a list, how true probabilities of few entries are.

Each has a light ground of its own, so that it reads on light and on dark pages. Run by `make
format`; a test checks that docs/pictures agrees.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
QUANTIZERS = ROOT / "results" / "table2" / "results.jsonl"
ARRIVALS = ROOT / "results" / "arrivals.jsonl"
WIDTH = 720
CELL = 26

INK, SOFT, LINE, GROUND, PAPER = "#1f2a37", "#526071", "#9aa7b6", "#f4f6f9", "#ffffff"
MASKED = "#dfe4ea"
FILLS = {"I": "#d3e4f7", "II": "#d2ecd9", "III": "#fbe2c8", "IV": "#e7dcf3"}
INKS = {"I": "#235a97", "II": "#22683f", "III": "#99500f", "IV": "#663d8f"}

# Invented entries of each area: a line for each row; a dot is missing, a question mark is missing
# and asked for.
AREAS = {
    "I": ("5.3..4.2", "..41?5..", "4..2..3.", ".5..1.4?", "2?..35.1", ".3.4..5."),
    "II": ("..2.5?.4", "3.?4...5", ".1..4.2?"),
    "III": ("4..", ".3?", "?.2", "5..", ".2?", "1.4"),
    "IV": ("?..", "..?", ".?."),
}
MEANINGS = {
    "I": ("trained rows and columns", "the model learns from them"),
    "II": ("new rows, trained columns", "entries describe the rows"),
    "III": ("trained rows, new columns", "entries describe the columns"),
    "IV": ("both new", "nothing here is ever an input"),
}


# Four invented films: the probability that somebody takes one, that they like it if they do, that
# it comes next, and the value that they would give.
FILMS = {
    "popular hit": (0.50, 0.70, 0.10, 4.0),
    "classic": (0.30, 0.80, 0.06, 4.2),
    "sequel of the last film": (0.12, 0.60, 0.45, 3.6),
    "rare gem": (0.02, 0.95, 0.01, 4.8),
}
FILM_AREAS = dict(zip(FILMS, FILLS, strict=True))  # whose colours the films have


def text(
    x: float, y: float, said: str, *, colour: str = INK, size: int = 14, anchor: str = "start"
) -> str:
    """Return a line of text whose baseline is at y."""
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" font-size="{size}" text-anchor="{anchor}">{said}</text>'


def box(
    x: float, y: float, width: float, height: float, *, fill: str = PAPER, edge: str = LINE
) -> str:
    """Return a rectangle."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"'
    return f'<rect {place} fill="{fill}" stroke="{edge}"/>'


def line(
    x: float, y: float, to_x: float, to_y: float, *, colour: str = SOFT, more: str = ""
) -> str:
    """Return a line, with further attributes such as dashes."""
    place = f'x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"'
    return f'<line {place} stroke="{colour}" stroke-width="1.6"{more}/>'


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a line with a head."""
    return line(x, y, to_x, to_y, more=' marker-end="url(#head)"')


def cells(x: float, y: float, lines: tuple[str, ...], area: str) -> Iterator[str]:
    """Yield the cells of some rows in the colour of an area."""
    for row, values in enumerate(lines):
        for column, value in enumerate(values):
            left, top = x + column * CELL, y + row * CELL
            yield box(left, top, CELL, CELL, fill=FILLS[area], edge=PAPER)
            if value != ".":
                yield text(
                    left + CELL / 2,
                    top + 18,
                    value,
                    colour=INKS[area] if value == "?" else INK,
                    anchor="middle",
                )


def areas() -> Iterator[str]:
    """Yield the matrix cut into four areas, and what each of them is."""
    left, top, gap = 108, 52, 8
    second_column, second_row = left + 8 * CELL + gap, top + 6 * CELL + gap
    corners = {
        "I": (left, top),
        "II": (left, second_row),
        "III": (second_column, top),
        "IV": (second_column, second_row),
    }
    for area, (x, y) in corners.items():
        yield from cells(x, y, AREAS[area], area)
    yield text(left + 4 * CELL, top - 14, "trained columns", colour=SOFT, anchor="middle")
    yield text(second_column + 1.5 * CELL, top - 14, "new columns", colour=SOFT, anchor="middle")
    yield text(left - 12, top + 3 * CELL + 5, "trained rows", colour=SOFT, anchor="end")
    yield text(left - 12, second_row + 1.5 * CELL + 5, "new rows", colour=SOFT, anchor="end")
    for place, (area, (what, use)) in enumerate(MEANINGS.items()):
        y = top + 62 * place
        yield box(440, y, 36, 36, fill=FILLS[area], edge=INKS[area])
        yield text(458, y + 24, area, colour=INKS[area], size=16, anchor="middle")
        yield text(488, y + 15, what)
        yield text(488, y + 34, use, colour=SOFT, size=13)


def extension() -> Iterator[str]:
    """Yield how a new row is added: its entries pass the branch for rows once; everything else is
    there already."""
    lines = {
        "II": (58, "carol, a new row", "..2.5..4", "branch for rows", "computed now"),
        "I": (186, "Alien, a trained column", "5..4.2", "branch for columns", "kept since fit"),
    }
    for area, (y, who, entries, branch, when) in lines.items():
        yield text(28, y - 12, who)
        yield from cells(28, y, (entries,), area)
        yield arrow(28 + len(entries) * CELL + 6, y + 13, 256, y + 13)
        yield box(262, y - 12, 150, 50, edge=INKS[area])
        yield text(337, y + 18, branch, anchor="middle")
        yield arrow(416, y + 13, 442, y + 13)
        for place in range(4):
            yield box(448 + 18 * place, y + 4, 18, 18, fill=FILLS[area], edge=INKS[area])
        yield text(484, y + 42, "latent", anchor="middle")
        yield text(484, y + 60, when, colour=INKS[area], size=13, anchor="middle")
    yield arrow(526, 76, 566, 124)
    yield arrow(526, 194, 566, 150)
    yield box(570, 112, 62, 50)
    yield text(601, 142, "cosine", anchor="middle")
    yield arrow(636, 137, 656, 137)
    yield text(678, 142, "4.2", size=16, anchor="middle")


def levels() -> Iterator[str]:
    """Yield the levels of a scale: by boundaries halfway, and by those that DMF-D learned."""
    yield text(28, 30, "real-valued score", colour=SOFT)
    for y, said, rest, boundaries in (
        (62, "rounded", "to the nearest", [1.5, 2.5, 3.5, 4.5]),
        (138, "by learned", "boundaries", read_boundaries()),
    ):
        yield text(28, y + 22, said)
        yield text(28, y + 40, rest)
        ends = [1.0, *boundaries, 5.0]
        for level, (start, end) in enumerate(pairwise(ends), start=1):
            yield box(
                score(start),
                y,
                score(end) - score(start),
                44,
                fill=FILLS["I"] if level % 2 else PAPER,
                edge=INKS["I"],
            )
            yield text(
                (score(start) + score(end)) / 2, y + 28, str(level), size=16, anchor="middle"
            )
        for boundary in boundaries:
            yield text(
                score(boundary), y + 60, f"{boundary:.2f}", colour=SOFT, size=12, anchor="middle"
            )
    example = 4.38
    yield line(
        score(example), 38, score(example), 182, colour=INKS["III"], more=' stroke-dasharray="5 4"'
    )
    yield text(score(example), 30, f"{example}", colour=INKS["III"], anchor="middle")


# The places of a row and of a column for the picture of OrdinalDMF; those after a bar are masked
# from both branches.
SEEN = {"II": ("5", ".", "|3", "4", ".", "|1"), "I": (".", "4", "|3", ".", "|5", "2")}


def ordinal() -> Iterator[str]:
    """Yield OrdinalDMF: masked entries, two branches, the score, the ordinal head; and below, the
    refinement."""
    outputs = {
        "II": (
            56,
            "row i",
            "branch for rows",
            ("direction u_i", "effect b_i", "cutpoints and slope"),
        ),
        "I": (176, "column j", "branch for columns", ("direction v_j", "effect c_j")),
    }
    asked = INKS["III"]  # entry (i, j), in the third place of both vectors
    for area, (y, who, branch, made) in outputs.items():
        yield text(28, y - 10, f"entries of {who}", size=13)
        for place, entry in enumerate(SEEN[area]):
            left = 28 + place * CELL
            yield box(left, y, CELL, CELL, fill=MASKED if "|" in entry else FILLS[area], edge=PAPER)
            value = entry.strip("|.")
            yield text(
                left + CELL / 2,
                y + 18,
                value,
                colour=LINE if "|" in entry else INK,
                anchor="middle",
            )
        yield f'<rect x="{28 + 2 * CELL}" y="{y}" width="{CELL}" height="{CELL}" fill="none" stroke="{asked}"/>'
        yield arrow(28 + 6 * CELL + 4, y + 13, 204, y + 13)
        yield box(208, y - 10, 142, 46, edge=INKS[area])
        yield text(279, y + 17, branch, anchor="middle", size=13)
        yield arrow(353, y + 13, 374, y + 13)
        for line_number, name in enumerate(made):
            yield subscripted(
                380, y + 18 + 18 * (line_number - (len(made) - 1) / 2), name, colour=INKS[area]
            )
    yield arrow(484, 50, 552, 94)
    yield arrow(474, 184, 520, 146)
    yield box(524, 98, 168, 54)
    yield text(608, 118, "score", anchor="middle", colour=SOFT, size=13)
    yield subscripted(534, 140, "a ⟨u_i , v_j ⟩ + b_i + c_j", size=13)
    yield arrow(608, 156, 608, 178)
    yield text(608, 193, "ordinal head: probabilities", anchor="middle", colour=SOFT, size=12)
    yield text(608, 207, "by the row's cutpoints", anchor="middle", colour=SOFT, size=12)
    for level, share in enumerate((0.03, 0.07, 0.2, 0.42, 0.28), start=1):
        left = 548 + 25 * (level - 1)
        yield box(left, 252 - 80 * share, 19, 80 * share, fill=FILLS["III"], edge=INKS["III"])
        yield text(left + 9.5, 267, str(level), size=12, anchor="middle")
    yield text(
        28, 244, "Training: grey entries are masked from both branches;", colour=SOFT, size=13
    )
    yield text(
        28,
        262,
        "the loss is on masked entries alone, such as entry (i, j), outlined.",
        colour=SOFT,
        size=13,
    )
    yield line(28, 284, WIDTH - 28, 284, colour=LINE, more=' stroke-dasharray="5 4"')
    yield text(
        28, 306, "After training: views, and the refinement of their mean", colour=SOFT, size=13
    )
    yield from _views(28, 322)
    steps = (
        ("latent:", "mean of views"),
        ("own entries, by views", "blind to them: residuals"),
        ("ridge step along", "landmark features"),
    )
    for x, width, (first, second) in zip((172, 302, 502), (106, 176, 134), steps, strict=True):
        yield arrow(x - 22, 350, x - 4, 350)
        yield box(x, 326, width, 48, edge=INKS["II"])
        yield text(x + width / 2, 346, first, anchor="middle", size=13)
        yield text(x + width / 2, 364, second, anchor="middle", size=13)
    yield arrow(640, 350, 658, 350)
    yield subscripted(664, 355, "w_i , b_i")
    yield text(
        28,
        402,
        "Rows by columns, then columns by rows; twice. A new row or column is refined the same way.",
        colour=SOFT,
        size=13,
    )


def orders() -> Iterator[str]:
    """Yield the same four films as relevance, what comes next, and value rank them."""
    relevance = {film: takes * likes for film, (takes, likes, _, _) in FILMS.items()}
    next_chances = {film: comes_next for film, (_, _, comes_next, _) in FILMS.items()}
    values = {film: value for film, (_, _, _, value) in FILMS.items()}
    panels = {
        "relevance": ("takes and likes it", relevance, 0.4, ".2f"),
        "next": ("takes it next", next_chances, 0.5, ".2f"),
        "value": ("stars, if it is taken", values, 5.4, ".1f"),
    }
    width = 220
    for place, (name, (question, ratings, widest, form)) in enumerate(panels.items()):
        left = 18 + 232 * place
        ranked = sorted(ratings, key=lambda film: -ratings[film])
        yield box(left, 16, width, 244)
        yield text(left + 14, 42, f'rank_by="{name}"', size=15)
        yield text(left + 14, 62, question, colour=SOFT, size=13)
        for position, film in enumerate(ranked):
            y = 78 + 44 * position
            area = FILM_AREAS[film]
            bar = (width - 70) * ratings[film] / widest
            yield text(left + 14, y + 13, f"{position + 1}  {film}", size=13)
            yield box(left + 14, y + 19, bar, 13, fill=FILLS[area], edge=INKS[area])
            yield text(
                left + 20 + bar, y + 30, format(ratings[film], form), colour=INKS[area], size=12
            )


def _views(x: float, y: float) -> Iterator[str]:
    """Yield three views of a row, each of which masks other entries."""
    for number, masked in enumerate(((0, 3), (0, 2, 5), (2, 3, 5))):
        for place, entry in enumerate(SEEN["II"]):
            observed = entry != "."
            fill = MASKED if place in masked and observed else FILLS["II"]
            yield box(x + place * 18, y + number * 18, 18, 18, fill=fill, edge=PAPER)
            if observed:
                colour = LINE if place in masked else INK
                yield text(
                    x + place * 18 + 9,
                    y + number * 18 + 13,
                    entry.strip("|"),
                    colour=colour,
                    size=11,
                    anchor="middle",
                )


def subscripted(x: float, y: float, said: str, *, colour: str = INK, size: int = 14) -> str:
    """Return a line of text in which `_i` is an index."""
    parts = re.sub(
        r"_(\w) ?", r'<tspan dy="3" font-size="10">\1</tspan><tspan dy="-3"> </tspan>', said
    )
    return text(x, y, parts, colour=colour, size=size)


def score(value: float) -> float:
    """Return where a score from 1 to 5 stands on the page."""
    return 160 + (value - 1.0) * 130


def read_boundaries() -> list[float]:
    """Return the boundaries that DMF-D learned on the first split of MovieLens-1M."""
    records = (json.loads(record) for record in QUANTIZERS.read_text(encoding="utf-8").splitlines())
    found: list[float] = next(
        record["boundaries"] for record in records if record["recipe"].endswith("dmf-d")
    )
    return found


# Forecasts that a point of the picture of reliability stands for, at least.
FEWEST_FORECASTS = 100


def reliability() -> Iterator[str]:
    """Yield the share of levels that came true by their stated probability, for new rows with few
    entries."""
    records = [json.loads(record) for record in ARRIVALS.read_text(encoding="utf-8").splitlines()]
    colours = {"bayesian": INKS["III"], "dmf-o": INKS["I"]}
    for place, n_known in enumerate((1, 3, 10)):
        x, y, size = 60 + 216 * place, 52, 180
        entries = "entry" if n_known == 1 else "entries"
        yield text(x + size / 2, y - 16, f"{n_known} known {entries}", anchor="middle")
        yield box(x, y, size, size)
        yield line(x, y + size, x + size, y, colour=LINE)
        yield text(x + size / 2, y + size + 20, "stated", colour=SOFT, size=13, anchor="middle")
        for record in records:
            if record["side"] == "rows" and record["known"] == n_known:
                colour = colours[record["model"]]
                for stated, came_true, count in record["reliability"]:
                    if count >= FEWEST_FORECASTS:
                        at = f'cx="{x + size * stated:.1f}" cy="{y + size * (1 - came_true):.1f}"'
                        yield f'<circle {at} r="4.5" fill="{colour}" fill-opacity=".75"/>'
        for share, anchor in ((0, "start"), (1, "end")):
            at_x, shown = x + size * share, f"{share:.0%}"
            yield text(at_x, y + size + 20, shown, colour=SOFT, size=12, anchor=anchor)
    yield text(52, 62, "100%", colour=SOFT, size=12, anchor="end")
    yield text(52, 142, "true", colour=SOFT, size=13, anchor="end")
    for place, (name, colour) in enumerate(
        (("BayesianMF", INKS["III"]), ("OrdinalDMF", INKS["I"]))
    ):
        yield f'<circle cx="{68 + 130 * place}" cy="278" r="4.5" fill="{colour}"/>'
        yield text(80 + 130 * place, 283, name, colour=SOFT, size=13)


def picture(parts: Iterator[str], *, height: int, title: str) -> str:
    """Return a whole SVG file."""
    head = '<marker id="head" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" role="img">',
            f"<title>{title}</title>",
            f'<defs>{head}<path d="M0,0 L6,3 L0,6 Z" fill="{SOFT}"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{height}" rx="10" fill="{GROUND}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def pictures() -> dict[Path, str]:
    """Return each file and what it should hold."""
    return {
        FOLDER / "areas.svg": picture(areas(), height=312, title="The four areas of a matrix"),
        FOLDER / "extension.svg": picture(extension(), height=266, title="Adding a new row"),
        FOLDER / "ordinal.svg": picture(
            ordinal(), height=420, title="OrdinalDMF: masks, branches, head, refinement"
        ),
        FOLDER / "levels.svg": picture(
            levels(), height=216, title="Levels, and the boundaries between them"
        ),
        FOLDER / "orders.svg": picture(orders(), height=276, title="Three orders of four films"),
        FOLDER / "reliability.svg": picture(
            reliability(), height=300, title="Stated probabilities of new rows, and what came true"
        ),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, drawn in pictures().items():
        path.write_text(drawn, encoding="utf-8")
