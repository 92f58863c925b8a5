"""Every source file with its role, as lists in Markdown: docs/conf.py puts them on the page of
source files."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "deepmf"


def role(path: Path) -> str:
    """Return the first line of a file's docstring; a package's is in its __init__.py."""
    file = path / "__init__.py" if path.is_dir() else path
    with file.open(encoding="utf-8") as lines:
        found = re.match(r'r?"""(.*?)\.?(?:""")?$', next(lines, ""))
    return found[1] if found else ""


def list_files(folder: Path = PACKAGE) -> Iterator[str]:
    """Yield a section with the files of a folder, then those of the packages in it."""
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    shown = "".join(f"- `{path.name}`: {role(path)}\n" for path in files)
    yield f"\n## {folder.relative_to(PACKAGE.parent).as_posix()}/\n\n{role(folder)}.\n\n{shown}"
    for package in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from list_files(package)


if __name__ == "__main__":
    sys.stdout.writelines(list_files())
