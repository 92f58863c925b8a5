"""Where the figures of the README and the docs come from.

A figure in a sentence is drawn from the results (`result_tables.py`), or its section stands in
`results/proofs.toml` with a command, a commit, the hardware and the date; published figures and
limits stand there with their source. The table of results/README.md is drawn from this file.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROOFS = ROOT / "results" / "proofs.toml"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"(<!-- proofs -->\n).*?(<!-- end -->)", re.DOTALL)

# What is drawn from the results, or run by the tests.
_PROVEN = re.compile(
    r"^```.*?^```$|<!-- (?:value|table|benchmark|peers) .*?<!-- end -->|`[^`\n]*`",
    re.DOTALL | re.MULTILINE,
)
_FIGURE = re.compile(
    r"(?<![\w/.])(?<!Python )\d*\.\d{2,}\b|\b\d[\d,.]* ?(?:s|ms|seconds|minutes|MB|GB|GiB|MiB)(?!\w)"
)
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def find_figures(page: str) -> dict[str, list[str]]:
    """Return the figures of each section of a page that nothing draws, by its heading."""
    parts = _HEADING.split(_PROVEN.sub("", page))
    sections = zip(parts[1::2], parts[2::2], strict=True)
    figures = {heading: _FIGURE.findall(text) for heading, text in sections}
    return {heading: numbers for heading, numbers in figures.items() if numbers}


def list_sections() -> Iterator[tuple[str, str]]:
    """Yield the page and the heading of each section with figures that nothing draws."""
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        for heading in find_figures(page.read_text(encoding="utf-8")):
            yield name, heading


def read_proofs() -> list[dict[str, Any]]:
    """Return the proofs, in their order."""
    proofs: list[dict[str, Any]] = tomllib.loads(PROOFS.read_text(encoding="utf-8"))["proof"]
    return proofs


def name_anchor(heading: str) -> str:
    """Return the anchor of a heading, as hosting sites name it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def make_table() -> str:
    """Return the table of results/README.md: a line for each section."""
    lines = ["| figures of | from | commit | hardware | date |", "| --- " * 5 + "|"]
    for proof in read_proofs():
        page, heading = proof["page"], proof["heading"]
        link = f"{Path(page).stem}: {heading}"
        if page.startswith("docs/"):  # the README is none of the built pages
            link = f"[{link}](../{page}#{name_anchor(heading)})"
        source = proof.get("source") or f"`{proof['command']}`"
        measured = [str(proof.get(field, "")) for field in ("commit", "hardware", "date")]
        lines.append(f"| {link} | {source} | {' | '.join(measured)} |")
    return "\n".join(lines) + "\n"


def draw_table(page: str) -> str:
    """Return a page with the table of today."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{make_table()}\n{block[2]}", page)


if __name__ == "__main__":
    target = ROOT / "results" / "README.md"
    target.write_text(draw_table(target.read_text(encoding="utf-8")), encoding="utf-8")
