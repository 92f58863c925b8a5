"""Write the file tree of docs/architecture.md: every source file with the first line of its docstring as its role.

Run by `make format`; a test checks that the page agrees.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
TREE = re.compile(r"(?<=```text\n)src/deepmf/\n.*?(?=```)", re.DOTALL)


def role(path: Path) -> str:
    """Return the first line of a file's docstring; a package's is in its __init__.py."""
    file = path / "__init__.py" if path.is_dir() else path
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0].rstrip(".")


def lines(folder: Path, indent: str = "") -> Iterator[tuple[str, str]]:
    """Yield each line of the tree and its role, files before folders."""
    inside = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    paths = sorted((path for path in inside if path.name != "__init__.py"), key=lambda path: (path.is_dir(), path.name))
    for path in paths:
        last = path == paths[-1]
        yield f"{indent}{'└── ' if last else '├── '}{path.name}{'/' if path.is_dir() else ''}", role(path)
        if path.is_dir():
            yield from lines(path, indent + ("    " if last else "│   "))


def tree() -> str:
    """Return the whole tree as text."""
    listed = list(lines(ROOT / "src" / "deepmf"))
    width = max(len(name) for name, _ in listed) + 2
    return "src/deepmf/\n" + "".join(f"{name:<{width}}{said}\n" for name, said in listed)


def written(page: str) -> str:
    """Return the page's text with the tree as it should be."""
    return TREE.sub(lambda _: tree(), page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
