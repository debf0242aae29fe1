"""Create a table whose constraints and indexes are named after its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeEngine

Columns = Sequence[sa.Column[Any]]
Type = TypeEngine[Any]

#: The types of columns, by what they hold. Money is in whole micro-dollars; hours are a decimal number as text.
ID = HOURS = sa.String(24)
NAME = sa.String(96)
TEXT = sa.Text()
WHOLE = sa.Integer()
USD = sa.BigInteger()
TIME = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

#: The state of a row, and how often it changed.
STATE: dict[str, Type] = {"state": sa.String(24), "version": WHOLE}
#: When a job takes up the row next, and which job has it now; each may be empty.
CLAIM: dict[str, Type] = {"due_at": TIME, "claim_token": sa.String(32), "claim_until": TIME}


def required(**types: Type) -> Columns:
    """Return columns that are never empty."""
    return [sa.Column(name, kind, nullable=False) for name, kind in types.items()]


def optional(**types: Type) -> Columns:
    """Return columns that may be empty."""
    return [sa.Column(name, kind) for name, kind in types.items()]


def table(
    name: str,
    *columns: Columns,
    key: Sequence[str] = ("id",),
    refers: Mapping[str, str] | None = None,
    unique: Sequence[str] = (),
    indexes: Sequence[Sequence[str]] = (),
    also: Sequence[sa.Constraint] = (),
    **options: Any,
) -> None:
    """Create a table and its indexes; `refers` is column: table, of which the column holds the id."""
    foreign = [
        sa.ForeignKeyConstraint([column], [f"{other}.id"], name=f"fk_{name}_{column}_{other}")
        for column, other in (refers or {}).items()
    ]
    once = [sa.UniqueConstraint(*unique, name="_".join(["uq", name, *unique]))] if unique else []
    main = sa.PrimaryKeyConstraint(*key, name=f"pk_{name}")
    op.create_table(name, *(one for some in columns for one in some), *also, *foreign, main, *once, **options)
    for among in indexes:
        op.create_index("_".join(["ix", name, *among]), name, list(among))


def unique_where(name: str, table_name: str, column: str, condition: str) -> None:
    """Create an index that allows each value of the column once among the rows that meet the condition."""
    where = sa.text(condition)
    op.create_index(name, table_name, [column], unique=True, sqlite_where=where, postgresql_where=where)


def refuse_changes(table_name: str, *, fixed: str, kept: str, change: str = "UPDATE") -> None:
    """Refuse every `change` of a table's rows with the sentence `fixed`, and their deletion with `kept`."""
    refusals = ((f"{table_name}_fixed", change, fixed), (f"{table_name}_no_delete", "DELETE", kept))
    is_postgresql = op.get_context().dialect.name == "postgresql"
    for trigger, what, message in refusals:
        before = f"CREATE TRIGGER {trigger} BEFORE {what} ON {table_name}"
        refused = (
            f"FOR EACH ROW EXECUTE FUNCTION ledger_refuse('{message}')"
            if is_postgresql
            else f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
        op.execute(sa.text(f"{before} {refused}"))
    if is_postgresql:
        before = f"CREATE TRIGGER {table_name}_no_truncate BEFORE TRUNCATE ON {table_name}"
        op.execute(sa.text(f"{before} FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse('{kept}')"))
