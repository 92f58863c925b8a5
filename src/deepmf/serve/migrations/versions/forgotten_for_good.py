"""Add the version at which features were first written, and remove receipts that contain ids."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, with 0 for features that a model may have, and remove all receipts."""
    op.add_column("features", sa.Column("first_version", sa.BigInteger, nullable=False, server_default="0"))
    op.execute("DELETE FROM receipts")


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("features", "first_version")
