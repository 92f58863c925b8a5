"""Write the lists of docs/files.md: every source file with the start of its docstring as its role.

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
    """Return what a file is, as its docstring begins; a package's is in its __init__.py."""
    file = path / "__init__.py" if path.is_dir() else path
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    line = text.split("\n")[0].rstrip(".")
    start = re.split(r"[:;.]\s", line)[0]
    return start if start.startswith("`") or start.count(" ") > 1 else line


def lists(folder: Path) -> Iterator[str]:
    """Yield the list of the files of a folder, then those of the packages in it."""
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    name = folder.relative_to(PACKAGE.parent).as_posix()
    shown = "".join(f"- `{path.name}`: {role(path)}\n" for path in files)
    yield f"\n## {name}/\n\n{role(folder)}.\n" + (f"\n{shown}" if shown else "")
    for package in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from lists(package)


def tree() -> str:
    """Return all lists."""
    return "".join(lists(PACKAGE)) + "\n"


def written(page: str) -> str:
    """Return the page's text with the lists as they should be."""
    return TREE.sub(lambda _: tree(), page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
