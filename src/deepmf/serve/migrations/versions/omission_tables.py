"""Add the tables of column states and of columns that rows dismissed."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
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


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("dismissals")
    op.drop_table("column_states")
