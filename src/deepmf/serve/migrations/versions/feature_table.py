"""Add the table of features written since training."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "features",
        sa.Column("axis", sa.String(6), primary_key=True),
        sa.Column("label", sa.LargeBinary, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=True),
        sa.Column("version", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop the table with all features."""
    op.drop_table("features")
