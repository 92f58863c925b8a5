"""Create the first tables; the next migration writes them out here, before it changes them."""

from alembic import op

from deepmf.serve.database import METADATA, STATE

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables and the single line of `state`."""
    METADATA.create_all(op.get_bind(), checkfirst=False)
    op.get_bind().execute(STATE.insert().values(id=1, data_version=0, model_version=0, exported_version=0))
