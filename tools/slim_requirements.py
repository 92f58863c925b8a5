"""Write deploy/requirements.txt: what the service needs, pinned as in constraints.txt.

Only fits of networks need torch, and only reports need matplotlib; every saved model is served
without them. The list is that of the installed packages:

    python tools/slim_requirements.py
"""

import re
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).parents[1]
LEFT_OUT = {"torch", "matplotlib"}


def collect(name: str, extras: frozenset[str], found: set[NormalizedName]) -> None:
    """Add the names of all packages that a package with some extras needs."""
    for line in requires(name) or []:
        needed = Requirement(line)
        is_asked = any(
            needed.marker is None or needed.marker.evaluate({"extra": extra})
            for extra in extras or {""}
        )
        needed_name = canonicalize_name(needed.name)
        if is_asked and needed_name not in found | LEFT_OUT:
            found.add(needed_name)
            collect(needed_name, frozenset(needed.extras), found)


def list_requirements() -> list[str]:
    """Return the pinned packages of the service and PostgreSQL, in the order of their names."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = {
        canonicalize_name(name): line for line, name in re.findall(r"^((\S+)==\S+)", text, re.M)
    }
    names = set[NormalizedName]()
    collect("deepmf", frozenset({"serve", "postgres"}), names)
    return [pins[name] for name in sorted(names)]


def main() -> None:
    """Write the list."""
    head = "# The service without torch and matplotlib: written by tools/slim_requirements.py\n"
    path = ROOT / "deploy" / "requirements.txt"
    path.write_text(head + "\n".join(list_requirements()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
