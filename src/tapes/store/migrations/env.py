"""Runs revisions on the connection that was handed over, in the transaction that it is in."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, transactional_ddl=True)
context.run_migrations()
