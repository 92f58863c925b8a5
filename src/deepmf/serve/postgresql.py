"""Connections to PostgreSQL that end if the server is silent."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen

_STATEMENT_SECONDS = 60  # after which the server ends a statement


class PatientConnection(psycopg.Connection[Any]):
    """A connection that is given up after some seconds of silence from the server.

    The limits of the server (`statement_timeout`) do not help if the server itself hangs while its operating system
    still acknowledges packets.
    """

    patience: float

    @classmethod
    def open(cls, *given: Any, patience: float, **named: Any) -> PatientConnection:
        """Connect with limits for the connection and its statements; arguments of the caller take precedence."""
        named.setdefault("connect_timeout", max(2, round(patience)))
        named.setdefault("tcp_user_timeout", round(1000 * patience))
        limits = f"-c statement_timeout={_STATEMENT_SECONDS}s -c lock_timeout={round(800 * patience)}ms"
        named["options"] = f"{limits} {named.get('options', '')}"
        connection = cls.connect(*given, **named)
        connection.patience = patience
        return connection

    def wait(self, gen: PQGen[RV], *given: Any, **named: Any) -> RV:
        """Wait for a statement; raise `OperationalError` after too long a silence."""
        try:
            return super().wait(_limit_silence(gen, getattr(self, "patience", 10.0)), *given, **named)
        except TimeoutError as error:
            self.close()
            raise psycopg.OperationalError("the database does not answer") from error


def _limit_silence(steps: PQGen[RV], seconds: float) -> PQGen[RV]:
    """Yield what each step waits for; raise `TimeoutError` after some seconds without an event."""
    since = time.monotonic()
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            now = time.monotonic()
            if ready:
                since = now
            elif now - since > seconds:
                raise TimeoutError
            wanted = steps.send(ready)
    except StopIteration as end:
        result: RV = end.value
        return result
