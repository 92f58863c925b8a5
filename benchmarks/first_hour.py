"""Write the tables of the page "A first hour" into this folder: wines, digits, and imports of
Python's own library.

None of them was prepared for this project: two come with scikit-learn, one is read from the files
of Python itself.
"""

import ast
import sysconfig
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.datasets import load_digits, load_wine


def write_wine() -> None:
    """Write 13 measurements of 178 wines, a tenth of them missing."""
    wine = load_wine(as_frame=True).data
    gaps = np.random.default_rng(0).random(wine.shape) < 0.1
    pl.from_pandas(wine.mask(gaps).rename_axis("wine").reset_index()).write_csv("wine.csv")


def write_digits() -> None:
    """Write 1,797 scans of 64 pixels with 17 levels, half of them missing, and the missing ones as
    a test."""
    scans = load_digits(as_frame=True).data.astype("Int64")
    hidden = np.random.default_rng(1).random(scans.shape) < 0.5
    pl.from_pandas(scans.mask(hidden).rename_axis("scan").reset_index()).write_csv("digits.csv")
    rows, columns = np.nonzero(hidden)
    pixels, values = np.array(scans.columns)[columns], scans.to_numpy()[rows, columns].astype(int)
    pl.DataFrame({"scan": rows, "column": pixels, "value": values}).write_csv("hidden.csv")


def write_imports() -> None:
    """Write which modules each file of the standard library imports, and the first line of their
    docstrings."""
    folder = Path(sysconfig.get_path("stdlib"))
    lines, titles = [], {}
    for path in sorted(folder.rglob("*.py")):
        if {"site-packages", "test", "tests"} & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        name = path.relative_to(folder).as_posix()
        nodes = list(ast.walk(tree))
        found = {
            alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
        }
        found |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
        lines += [(name, module) for module in sorted(found)]
        module = name.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        titles[module] = (ast.get_docstring(tree) or "").split("\n")[0]
    pl.DataFrame(lines, schema=["file", "module"], orient="row").write_csv("imports.csv")
    known = sorted(name for name in {module for _, module in lines} if titles.get(name))
    pl.DataFrame({"module": known, "title": [titles[name] for name in known]}).write_csv(
        "modules.csv"
    )


if __name__ == "__main__":
    write_wine()
    write_digits()
    write_imports()
