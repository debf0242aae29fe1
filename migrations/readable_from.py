"""Store in the ledger which revision's code is the oldest that can work on it.

A step expands: it adds nullable columns, tables and indexes, and code of the revisions before works on. A step that
takes something away, or lets it mean something else, contracts: it names itself here, and runs a release after the last
code that needed what it takes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


def set_readable_from(revision: str) -> None:
    """Say that only code that knows `revision` can work on the ledger from now on."""
    op.execute(sa.text(f"UPDATE alembic_version SET readable_from = '{revision}'"))  # noqa: S608 # Our own numbers.
