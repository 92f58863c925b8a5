"""The log: one JSON object per line on standard error, without ids and values."""

from __future__ import annotations

import json
import logging
import sys
import time

from deepmf.errors import BadSetting

LEVELS = ("info", "warning", "error")


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON: time, level, what happened, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; of an exception, only its kind: what it says may hold ids."""
        content = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            content["error"] = record.exc_info[0].__name__
        return json.dumps(content)


def configure_log(level: str) -> None:
    """Let the service and its server write to standard error, from a level on."""
    if level not in LEVELS:
        raise BadSetting(f"--log-level must be {', '.join(LEVELS)}; got {level!r}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("deepmf.serve", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
