"""Write the tables of the README and the docs from the committed results, between lines like `<!-- table table1 -->`.

Run by `make format`; a test checks that the pages agree with the results.
"""

import re
from pathlib import Path

from deepmf.experiments.recipe import read_table
from deepmf.experiments.remarks import notes
from deepmf.experiments.result_table import costs, markdown
from deepmf.experiments.results import Results
from deepmf.experiments.search import best_of
from deepmf.experiments.search import candidates as candidates_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = (ROOT / "README.md", ROOT / "docs" / "reproduction.md")
BLOCK = re.compile(r"(<!-- (table|costs|search) ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def block(kind: str, table: str) -> str:
    """Return what stands in a block of a page: a table with its notes, its cost, or how its settings were chosen."""
    recipes = read_table(table)
    if kind == "search":
        searched = [recipe for recipe in recipes if recipe.search]
        names = [trial.recipe for recipe in searched for trial in candidates_of(recipe)]
        return best_of(searched, Results(RESULTS / "search").records(names))
    records = Results(RESULTS).records(recipes)
    if not records:
        return "\nThere are no results yet.\n\n"
    if kind == "costs":
        return f"\n{costs(records)}\n"
    said = "".join(f"- {note}\n" for note in notes(table, records))
    return f"\n{markdown(table, records)}\n{said}\n"


def written(page: str) -> str:
    """Return a page's text with every block as it should be."""
    return BLOCK.sub(lambda found: found[1] + block(found[2], found[3]) + found[4], page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
