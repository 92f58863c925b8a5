"""Features know when they first came, so that those that were exported stay forgotten; receipts hold no ids."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, with 0 where a model may have the features, and remove receipts, which hold ids until now."""
    op.add_column("features", sa.Column("first_version", sa.BigInteger, nullable=False, server_default="0"))
    op.execute("DELETE FROM receipts")


def downgrade() -> None:
    """Remove the column."""
    op.drop_column("features", "first_version")
