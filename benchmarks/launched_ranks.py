"""Ranks of a benchmark: processes of one script that meet, one thread each; the first says what it found."""

import json
import os
import socket
import subprocess
import sys
from typing import Any


def found_by_ranks(script: str, size: int, arguments: list[str]) -> dict[str, Any]:
    """Run a script once for each of some ranks, with --rank, --size and --meeting, and return what the first prints."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, script, *arguments, "--meeting", meeting, "--size", str(size)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([*command, "--rank", str(rank)], stdout=subprocess.PIPE, text=True, env=environment)
        for rank in range(size)
    ]
    said = [rank.communicate()[0] for rank in ranks]
    found: dict[str, Any] = json.loads(said[0].splitlines()[-1])
    return found
