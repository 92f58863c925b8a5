"""Attack a service and the files that it reads, and say what was tried and what was lost.

    make attack                                   everything, in minutes
    make attack OPTIONS="postgres slow_peers"     some of it

Everything happens on this machine, in a temporary folder. The exit status is 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

from attack import catalogue, clock, damaged_files, permissions, postgres, slow_peers

ATTACKS = {
    "postgres": postgres.attack,
    "clock": clock.attack,
    "permissions": permissions.attack,
    "damaged_files": damaged_files.attack,
    "slow_peers": slow_peers.attack,
    "catalogue": catalogue.attack,
}


def main() -> int:
    """Run the attacks that are named on the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)}")
    names = parser.parse_args().names or list(ATTACKS)
    if unknown := [name for name in names if name not in ATTACKS]:
        parser.error(f"there is no attack {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    warnings.simplefilter("ignore")
    n_lost = 0
    _write_line("what", "how many", "lost or wrong", "beside this")
    _write_line("---", "---", "---", "---")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="deepmf-attack-") as folder:
            for outcome in ATTACKS[name](Path(folder)):
                _write_line(outcome.what, outcome.tried, f"{outcome.n_lost:,}", outcome.remark)
                n_lost += outcome.n_lost
    return 1 if n_lost else 0


def _write_line(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
