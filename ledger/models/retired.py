"""Keep columns in the schema that this release neither reads nor writes, for the release before it.

A migration that removed one would stop the replicas of that release, and the way back to it. They aren't mapped, so no
code can use them by mistake. A later release removes them from here and from the database.
"""

from __future__ import annotations

from sqlalchemy import Column

from ledger.kernel.columns import UtcDateTime
from ledger.models.base import Base

#: The table → its columns, each nullable or with a default of the database.
RETIRED = {
    # Nothing has ever written it. An agent's last check-in is `nodes.at`.
    "instances": (Column("heartbeat_at", UtcDateTime),),
}


def keep_retired() -> None:
    """Add the columns to the tables of models that are mapped already."""
    for name, columns in RETIRED.items():
        for column in columns:
            Base.metadata.tables[name].append_column(column)
