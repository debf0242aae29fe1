"""Spell the ledger's column types as plain ones in new schema steps."""

from __future__ import annotations

from typing import Any, Literal

from alembic.autogenerate.api import AutogenContext

from ledger.kernel.columns import EnumText, Json, MicroUsd, SafeString, SafeText, UtcDateTime

#: A step names plain types, so that it does not change when a column type of ours does.
PLAIN: tuple[tuple[type[Any], str], ...] = (
    (MicroUsd, "sa.BigInteger()"),
    (UtcDateTime, "sa.DateTime(timezone=True)"),
    (EnumText, "sa.String(length=24)"),
    (SafeText, "sa.Text()"),
    (Json, 'sa.JSON().with_variant(postgresql.JSONB(), "postgresql")'),
)


def plain_type(kind: str, item: Any, autogen: AutogenContext) -> str | Literal[False]:
    """Spell a column type of ours for a new step; False leaves it to alembic."""
    if kind != "type":
        return False
    if isinstance(item, SafeString):
        return f"sa.String(length={item.length})"
    for ours, spelled in PLAIN:
        if isinstance(item, ours):
            if "postgresql." in spelled:
                autogen.imports.add("from sqlalchemy.dialects import postgresql")
            return spelled
    return False
