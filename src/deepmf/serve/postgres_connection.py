"""Connections to PostgreSQL that wait for an answer for so long and no longer."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen

_STATEMENT_SECONDS = 60  # after which the server itself ends a statement that nobody waits for any more


class PatientConnection(psycopg.Connection[Any]):
    """A connection that is given up once the server has said nothing for some seconds while it was waited for.

    The limits of the server (`statement_timeout`) do not help where the server itself hangs, and the system goes on
    acknowledging what it is sent.
    """

    patience: float

    @classmethod
    def open(cls, *given: Any, patience: float, **named: Any) -> PatientConnection:
        """Connect as psycopg does, with limits for the connection and the statements; what is given comes first."""
        named.setdefault("connect_timeout", max(2, round(patience)))
        named.setdefault("tcp_user_timeout", round(1000 * patience))
        limits = f"-c statement_timeout={_STATEMENT_SECONDS}s -c lock_timeout={round(800 * patience)}ms"
        named["options"] = f"{limits} {named.get('options', '')}"
        connection = cls.connect(*given, **named)
        connection.patience = patience
        return connection

    def wait(self, gen: PQGen[RV], *given: Any, **named: Any) -> RV:
        """Wait for what a statement needs."""
        try:
            return super().wait(_until_silent(gen, getattr(self, "patience", 10.0)), *given, **named)
        except TimeoutError as error:
            self.close()
            raise psycopg.OperationalError("the database does not answer") from error


def _until_silent(steps: PQGen[RV], seconds: float) -> PQGen[RV]:
    """Yield what each step waits for; give up where nothing came for some seconds."""
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
