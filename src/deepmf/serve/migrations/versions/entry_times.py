"""Add the time and the weight of entries."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; entries that were written before have no date and the weight 1."""
    op.add_column("entries", sa.Column("time", sa.BigInteger, nullable=True))
    op.add_column("entries", sa.Column("weight", sa.Double, nullable=True))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("entries", "weight")
    op.drop_column("entries", "time")
