"""Write the tables of docs/files.md: every source file with the first line of its docstring as its role.

Run by `make format`; a test checks that the page agrees.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "deepmf"
PAGE = ROOT / "docs" / "files.md"
TREE = re.compile(r"(?<=<!-- files -->\n).*?(?=<!-- end -->)", re.DOTALL)


@cache
def role(path: Path) -> str:
    """Return the first line of a file's docstring; a package's is in its __init__.py."""
    file = path / "__init__.py" if path.is_dir() else path
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0].rstrip(".")


def tables(folder: Path) -> Iterator[str]:
    """Yield the table of the files of a folder, then those of the packages in it."""
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    name = folder.relative_to(PACKAGE.parent).as_posix()
    shown = "".join(f"| `{path.name}` | {role(path).replace('|', chr(92) + '|')} |\n" for path in files)
    yield f"\n## {name}/\n\n{role(folder)}.\n" + (f"\n| file | role |\n| --- | --- |\n{shown}" if shown else "")
    for package in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from tables(package)


def tree() -> str:
    """Return all tables."""
    return "".join(tables(PACKAGE)) + "\n"


def written(page: str) -> str:
    """Return the page's text with the tables as they should be."""
    return TREE.sub(lambda _: tree(), page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
