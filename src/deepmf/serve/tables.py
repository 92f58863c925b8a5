"""The tables of the database: the entries and features that came since training, and what goes with them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Dialect, Double, Index, Integer, LargeBinary, MetaData, String, Table
from sqlalchemy.types import TypeDecorator


class IdBytes(TypeDecorator[Any]):
    """An id as bytes: `s` and UTF-8 for text, `i` and digits for a number; any character survives any database."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        """Return an id as it is stored."""
        if value is None:
            return None
        return b"i%d" % value if isinstance(value, int) else b"s" + str(value).encode("utf-8", "surrogatepass")

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Return the id that was stored."""
        if value is None:
            return None
        stored = bytes(value)
        return int(stored[1:]) if stored[:1] == b"i" else stored[1:].decode("utf-8", "surrogatepass")


METADATA = MetaData()

# One line. data_version: counts transactions that changed entries; exported_version: what it was at the last export.
STATE = Table(
    "state",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("data_version", BigInteger, nullable=False),
    Column("model_version", BigInteger, nullable=False),
    Column("exported_version", BigInteger, nullable=False),
)

# The model files that were served, by the digest of their bytes.
MODELS = Table(
    "models",
    METADATA,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
)

# Entries that differ from the model's file. A value of null: forgotten.
# first_version: the data version at which the pair came; 0 where a model's file has, or had, it.
ENTRIES = Table(
    "entries",
    METADATA,
    Column("row_id", IdBytes, primary_key=True),
    Column("column_id", IdBytes, primary_key=True),
    Column("value", Double, nullable=True),
    Column("version", BigInteger, nullable=False),
    Column("first_version", BigInteger, nullable=False),
    Index("entries_by_column", "column_id"),
)

# Features that differ from the model's file: values by name, as JSON, as they were given. A content of null: forgotten.
# first_version: as for entries.
FEATURES = Table(
    "features",
    METADATA,
    Column("axis", String(6), primary_key=True),
    Column("label", IdBytes, primary_key=True),
    Column("content", LargeBinary, nullable=True),
    Column("version", BigInteger, nullable=False),
    Column("first_version", BigInteger, nullable=False),
)

# Which rows and columns a transaction changed: other workers read these anew. Old lines are removed.
CHANGES = Table(
    "changes",
    METADATA,
    Column("version", BigInteger, primary_key=True),
    Column("axis", String(6), primary_key=True),
    Column("label", IdBytes, primary_key=True),
)

# Answers to writes that came with an Idempotency-Key, for a day.
RECEIPTS = Table(
    "receipts",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("request", String(64), nullable=False),
    Column("answer", LargeBinary, nullable=False),
    Column("time", Double, nullable=False),
    Index("receipts_by_time", "time"),
)

# Errors of predictions made before the entry arrived, by model version and area.
LIVE_ERRORS = Table(
    "live_errors",
    METADATA,
    Column("model_version", BigInteger, primary_key=True, autoincrement=False),
    Column("area", String(3), primary_key=True),
    Column("n_entries", BigInteger, nullable=False),
    Column("squared_error", Double, nullable=False),
    Column("absolute_error", Double, nullable=False),
)
