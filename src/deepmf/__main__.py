"""`python -m deepmf` and the script `deepmf`: the command line."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C ends it quietly even while it is imported."""
    try:
        from deepmf.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
