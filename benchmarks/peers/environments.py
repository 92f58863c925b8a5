"""The environments of the peers: one for each library, made once; what did not install is noted
with the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from deepmf.files import write_atomically
from peers.declared import OURS, Environment

MOST_SECONDS = 1800  # for an installation, which may compile
_READY = "ready.json"


class Installed(NamedTuple):
    """The interpreter of an environment, or the reason why there is none."""

    python: Path | None
    failure: str


def ensure_installed(
    environment: Environment,
    folder: Path,
    install: Callable[[Environment, Path], str] | None = None,
) -> Installed:
    """Return the environment's interpreter, installing what it needs unless that was done, or
    tried, before.

    install: makes an environment in a folder, and returns "" or why it cannot; default: by pip.
    """
    home = folder / environment.name
    noted = home / _READY
    wanted = [*environment.before, *environment.requirements]
    if noted.exists():
        kept = json.loads(noted.read_text(encoding="utf-8"))
        if kept["requirements"] == wanted:
            return Installed(None if kept["failure"] else _python(home), kept["failure"])
    failure = (install or install_by_pip)(environment, home)
    home.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"requirements": wanted, "failure": failure}, indent=1)
    write_atomically(noted, lambda temporary: temporary.write_text(content, encoding="utf-8"))
    return Installed(None if failure else _python(home), failure)


def ours() -> Installed:
    """Return the interpreter that runs this: deepmf is installed there."""
    return Installed(Path(sys.executable), "")


def variables(environment: str, *, threads: int) -> dict[str, str]:
    """Return the environment variables of a run; deepmf is found where this process found it."""
    found = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        found[name] = str(threads)
    found.pop("PYTHONPATH", None)
    if environment == OURS:
        found["PYTHONPATH"] = str(Path(__file__).parents[2] / "src")
    return found


def _python(home: Path) -> Path:
    return home / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def install_by_pip(environment: Environment, home: Path) -> str:
    """Make the environment; return "" or why it could not be made."""
    pip = [str(_python(home)), "-m", "pip", "install", "--quiet"]
    steps = [
        [] if _python(home).exists() else [sys.executable, "-m", "venv", str(home)],
        [*pip, *environment.before] if environment.before else [],
        [*pip, *environment.options, *environment.requirements],
    ]
    for step in filter(None, steps):
        try:
            done = subprocess.run(
                step, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"installing took more than {MOST_SECONDS} s"
        if done.returncode:
            return reason(done.stderr)
    return ""


def reason(said: str) -> str:
    """Return the line of pip's output that says most: the last error, without notes and hints.

    >>> reason("WARNING: slow\\nERROR: No matching distribution found for lightfm==9\\nhint: see above")
    'ERROR: No matching distribution found for lightfm==9'
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [
        line
        for line in lines
        if "error" in line.lower() and not line.lower().startswith(("hint", "note"))
    ]
    return (telling or lines or ["pip said nothing"])[-1][:300]
