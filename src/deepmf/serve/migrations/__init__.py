"""The migrations of the database, by alembic."""
