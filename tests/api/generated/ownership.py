"""Say which rows of the ledger are one program's, and whether an answer or a change reached across to another's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, event, select

from ledger.engine.db import Database
from ledger.models import Base
from tests.api.generated.calls import Answer, Call, Things

#: Columns that say whose a row is, or which row it belongs to; every other one may hold what a caller wrote.
NAMES = frozenset(
    {"id", "actor", "owner", "requester", "subject", "scope", "delegator", "delegate"}
    | {f"{one}_id" for one in ("request", "session", "instance", "webhook", "parent", "quote", "grant", "approval")}
    | {"entry_id", "event_id"}
)
#: Where the ids of a table's rows go, as a caller names them.
PARAMETERS: Mapping[str, Sequence[str]] = {
    "requests": ("request", "session"),
    "sessions": ("session", "request", "bill"),
    "instances": ("session", "request", "bill", "orphan"),
    "webhooks": ("webhook",),
    "webhook_deliveries": ("delivery",),
    "events": ("event",),
    "api_keys": ("key_id",),
}
#: What of a row may stand in nobody else's answer, beside its id.
SECRETS: Mapping[str, Sequence[str]] = {"instances": ("name", "label", "ref")}
#: The order and the hashes of everybody's events, which every reader of the journal brings up to date.
SHARED = frozenset({"event_order", "event_hashes", "unnumbered_events"})
#: A shorter text than this may stand in an answer by chance.
SHORTEST, REFUSED = 12, 400
Rows = dict[str, list[Row[Any]]]


@dataclass
class Belongings:
    """What is one program's: its rows as they are, and what of them nobody else may read."""

    rows: frozenset[str]
    ids: frozenset[str]
    secrets: frozenset[str]
    things: Things


@dataclass
class Judge:
    """Watch the ledger for writes, and compare what belongs to a program before and after a call."""

    db: Database
    #: Each program's texts that it never wrote in a call and nobody else may read: its key, its node's token, its name.
    private: Mapping[str, list[str]]
    wrote: bool = True
    compared: int = 0
    found: list[str] = field(default_factory=list)
    #: What each program stored of the other's in text of its own, which it may read again.
    repeated: dict[str, set[str]] = field(default_factory=dict)
    _known: dict[str, Belongings] = field(default_factory=dict)

    def watch(self) -> None:
        """Note from now on that something was written, so that only then everything is compared."""
        for engine in {self.db._writer.sync_engine, self.db._reader.sync_engine}:
            event.listen(engine, "after_cursor_execute", self._note)

    def _note(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.lstrip().upper().startswith(("SELECT", "WITH", "BEGIN", "PRAGMA")):
            self.wrote = True

    async def look(self) -> Mapping[str, Belongings]:
        """Read the ledger, and keep what belongs to each program now."""
        rows = await read_rows(self.db)
        self._known = {name: belongings(rows, name, private) for name, private in self.private.items()}
        self.wrote = False
        return self._known

    async def judge(self, name: str, call: Call, answer: Answer) -> None:
        """Compare the other program's things with what they were before this call of `name`."""
        (other,) = [one for one in self.private if one != name]
        before = self._known[other]
        said, repeated = call.said, self.repeated.setdefault(name, set())
        own = {one for one in before.secrets if one in said}
        if self.wrote and answer.status < REFUSED:
            repeated |= own
        if read := sorted(one for one in before.secrets - own - repeated if one in answer.text):
            self.found.append(f"{name} read {read[:3]} of {other}: {call.operation} {call.path} {answer.text[:400]}")
        if self.wrote:
            self.compared += 1
            after = (await self.look())[other]
            if changed := sorted(before.rows ^ after.rows):
                self.found.append(f"{name} changed {changed[:3]} of {other}: {call.operation} {call.path} {said[:400]}")


async def read_rows(db: Database) -> Rows:
    """Every row of the ledger, by table."""
    async with db.read() as tx:
        return {
            table.name: list(await tx.execute(select(table)))
            for table in Base.metadata.sorted_tables
            if table.name not in SHARED
        }


def belongings(rows: Rows, name: str, private: Iterable[str]) -> Belongings:
    """What of these rows is `name`'s: what names it, and what names a row of its."""
    naming: dict[str, list[tuple[str, Row[Any]]]] = {}
    for table, found in rows.items():
        columns = [one.key for one in Base.metadata.tables[table].columns if one.key in NAMES]
        for row in found:
            for value in {row._mapping[column] for column in columns}:
                naming.setdefault(value, []).append((table, row))
    ids, mine = set[str](), dict[tuple[str, str], Row[Any]]()
    left: list[Any] = [name, f"budget:{name}"]
    while left:
        one = left.pop()
        if not isinstance(one, str) or one in ids:
            continue
        ids.add(one)
        for table, row in naming.get(one, ()):
            if mine.setdefault((table, str(row)), row) is row and "id" in row._mapping:
                left.append(row._mapping["id"])
    secrets = {text for text in (*ids, *private) if len(text) >= SHORTEST}
    things = Things()
    for (table, _), row in mine.items():
        values = [row._mapping[column] for column in SECRETS.get(table, ())]
        secrets |= {text for text in values if isinstance(text, str) and len(text) >= SHORTEST}
        known = [row._mapping["id"]] if table in PARAMETERS else []
        if table == "instances" and row._mapping["ref"]:
            known.append(f"{row._mapping['cloud']}:{row._mapping['ref']}")
        for parameter in PARAMETERS.get(table, ()):
            things.ids.setdefault(parameter, []).extend(known)
    shown = frozenset(f"{table}: {text}" for table, text in mine)
    return Belongings(shown, frozenset(ids), frozenset(secrets), things)
