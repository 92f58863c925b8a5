"""Create the first tables; `deepmf.serve.database` says what they hold."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables and the single line of `state`."""
    op.create_table(
        "state",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("data_version", sa.BigInteger, nullable=False),
        sa.Column("model_version", sa.BigInteger, nullable=False),
        sa.Column("exported_version", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO state (id, data_version, model_version, exported_version) VALUES (1, 0, 0, 0)")
    op.create_table(
        "models",
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scale", sa.String, nullable=False),
    )
    op.create_table(
        "entries",
        sa.Column("row_id", sa.LargeBinary, primary_key=True),
        sa.Column("column_id", sa.LargeBinary, primary_key=True),
        sa.Column("value", sa.Double, nullable=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("first_version", sa.BigInteger, nullable=False),
        sa.Column("time", sa.BigInteger, nullable=True),
        sa.Column("weight", sa.Double, nullable=True),
    )
    op.create_index("entries_by_column", "entries", ["column_id"])
    op.create_table(
        "features",
        sa.Column("axis", sa.String(6), primary_key=True),
        sa.Column("label", sa.LargeBinary, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("first_version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "column_states",
        sa.Column("column_id", sa.LargeBinary, primary_key=True),
        sa.Column("visible", sa.Boolean, nullable=False),
        sa.Column("start", sa.Double, nullable=True),
        sa.Column("stop", sa.Double, nullable=True),
    )
    op.create_table(
        "dismissals",
        sa.Column("row_id", sa.LargeBinary, primary_key=True),
        sa.Column("column_id", sa.LargeBinary, primary_key=True),
    )
    op.create_table(
        "changes",
        sa.Column("version", sa.BigInteger, primary_key=True),
        sa.Column("axis", sa.String(6), primary_key=True),
        sa.Column("label", sa.LargeBinary, primary_key=True),
    )
    op.create_table(
        "receipts",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("answer", sa.LargeBinary, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
    )
    op.create_index("receipts_by_time", "receipts", ["time"])
    op.create_table(
        "live_errors",
        sa.Column("model_version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("area", sa.String(3), primary_key=True),
        sa.Column("n_entries", sa.BigInteger, nullable=False),
        sa.Column("squared_error", sa.Double, nullable=False),
        sa.Column("absolute_error", sa.Double, nullable=False),
    )
