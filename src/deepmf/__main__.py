"""`python -m deepmf`: the command line, where its script is not on the path."""

from __future__ import annotations

from deepmf.cli.app import main

if __name__ == "__main__":
    main()
