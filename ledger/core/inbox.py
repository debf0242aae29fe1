"""Store every inbound message on disk before it is acknowledged; messages that wait share a commit.

While one commit runs, the messages that arrive collect, and the next commit takes them all; under load the cost of a
flush to disk is divided by the size of the group. Finished rows are marked in the same groups: a crash before the mark
processes a message again, and every command is built so that this changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core.claims import Claim
from ledger.engine.db import Database
from ledger.kernel.columns import CHECKED_JSON, storable, storable_json
from ledger.kernel.ids import hex_token
from ledger.kernel.states import InboxState
from ledger.models import Inbox

LONGEST_KEY = 128
#: The least time between the starts of two groups. A message that comes alone is not held up; during a burst a group
#: holds what arrived in this time, so that the fixed cost of a transaction is shared by many messages.
GROUP_EVERY_S = 0.01
#: A group of this size does not wait for more: its senders continue while the next group is written.
GROUP_MAX = 64


@dataclass(frozen=True, slots=True)
class Inbound:
    """Hold one message as it came: `key` is unique to it, `body` has no token and no response URL in it.

    Raises ValueError for a key that is empty or too long, and for a body that is not JSON: such a message must fail
    alone, before it shares a commit with those of other people.
    """

    key: str
    kind: str
    body: dict[str, Any]
    answer: dict[str, Any]
    at: datetime

    def __post_init__(self) -> None:
        """Check the message, and replace characters that no database takes, in the key too."""
        if not 0 < len(self.key) <= LONGEST_KEY:
            raise ValueError(f"the key of a message has 1 to {LONGEST_KEY} characters; this one has {len(self.key)}")
        try:
            clean = storable_json({"body": self.body, "answer": self.answer})
        except (TypeError, RecursionError) as error:
            raise ValueError(f"the body of a message must be JSON: {error}") from error
        object.__setattr__(self, "key", storable(self.key))
        object.__setattr__(self, "body", clean["body"])
        object.__setattr__(self, "answer", clean["answer"])


@dataclass(frozen=True, slots=True)
class Receipt:
    """Answer a stored message.

    `claim` is set when it is new and ours to process; a replay has only the stored `answer`.
    """

    answer: dict[str, Any]
    claim: Claim | None


class StorageUnknown(RuntimeError):
    """Say that a message may be stored or not: the database went away and did not return at once."""


class InboxWriter:
    """Store inbound messages in group commits. One per process."""

    def __init__(self, db: Database, lease: timedelta) -> None:
        self._db = db
        self._lease = lease
        # The table and not its class: the mapper's bulk insert costs more than the rest of an acknowledgement.
        checked = {name: bindparam(name, type_=CHECKED_JSON) for name in ("body", "answer")}
        self._insert = db.insert(Inbox.__table__).values(checked).on_conflict_do_nothing(index_elements=["key"])
        self._incoming: list[tuple[Inbound, asyncio.Future[Receipt]]] = []
        self._finished: list[str] = []
        self._flusher: asyncio.Task[None] | None = None
        self._next_group_at = 0.0

    async def put(self, message: Inbound) -> Receipt:
        """Store the message; return when it is committed. A message seen before returns its first answer.

        Raises `StorageUnknown` when it may be stored, and any other error when it is not.
        """
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._incoming.append((message, receipt))
        self._start()
        return await receipt

    def finish(self, key: str) -> None:
        """Mark a message as processed with the next group."""
        self._finished.append(storable(key))
        self._start()

    async def drain(self) -> None:
        """Wait until everything handed over so far is on disk."""
        while self._flusher is not None and not self._flusher.done():
            await asyncio.shield(self._flusher)  # A caller that gives up waiting must not cancel everybody's commit.

    def _start(self) -> None:
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush(), name="inbox-flush")

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._incoming or self._finished:
            batch: list[tuple[Inbound, asyncio.Future[Receipt]]] = []
            try:
                if len(self._incoming) < GROUP_MAX:
                    await asyncio.sleep(self._next_group_at - loop.time())
                self._next_group_at = loop.time() + GROUP_EVERY_S
                batch, self._incoming = self._incoming[:GROUP_MAX], self._incoming[GROUP_MAX:]
                finished, self._finished = self._finished, []
                receipts = await self._store([m for m, _ in batch], finished)
            except Exception as error:  # noqa: BLE001 # Every waiter must get the error; none may be acknowledged.
                for _, receipt in batch:
                    if not receipt.done():
                        receipt.set_exception(error)
                continue
            except asyncio.CancelledError:
                for _, receipt in [*batch, *self._incoming]:
                    receipt.cancel()
                raise
            for message, receipt in batch:
                if not receipt.done():
                    receipt.set_result(receipts[message.key])
                # A second copy in the same group is a replay: only the first holds the claim.
                receipts[message.key] = Receipt(receipts[message.key].answer, None)

    async def _store(self, batch: list[Inbound], finished: list[str]) -> dict[str, Receipt]:
        """Commit a group, and once more when its connection was lost: it may be stored, whatever the error says.

        Otherwise its senders would get an error for a stored message, and send it again. The token is the same, so a
        message that is stored already is still ours. Raises `StorageUnknown` when the second try fails too.
        """
        token = hex_token()
        try:
            return await self._commit(batch, finished, token)
        except (DBAPIError, OSError) as error:  # A socket's own error says as little, and no time-out does either.
            if isinstance(error, DBAPIError) and not error.connection_invalidated:
                raise
        try:
            return await self._commit(batch, finished, token)
        except Exception as error:
            raise StorageUnknown("the database went away while messages were stored") from error

    async def _commit(self, batch: list[Inbound], finished: list[str], token: str) -> dict[str, Receipt]:
        unique = {m.key: m for m in reversed(batch)}
        async with self._db.write(first=True) as tx:
            if finished:
                await tx.execute(
                    update(Inbox)
                    .where(Inbox.key.in_(finished))
                    .values(state=InboxState.DONE, due_at=None, claim_token=None, claim_until=None)
                )
            if not unique:
                return {}
            # In one order everywhere, so that two replicas that got the same messages do not wait for each other.
            rows = [_row(unique[key], token, self._lease) for key in sorted(unique)]
            result: Any = await tx.execute(self._insert, rows)
            # Most groups hold nothing twice, and SQLite says so; asyncpg counts no rows of many statements.
            new = set(unique) if result.rowcount == len(rows) else await _held_by(tx, unique, token)
            seen = [key for key in unique if key not in new]
            answers: dict[str, dict[str, Any]] = {}
            if seen:
                stored = await tx.execute(select(Inbox.key, Inbox.answer).where(Inbox.key.in_(seen)))
                answers = {key: answer or {} for key, answer in stored}
        return {
            key: Receipt(message.answer, Claim(key, token)) if key in new else Receipt(answers.get(key, {}), None)
            for key, message in unique.items()
        }


async def _held_by(tx: AsyncSession, keys: Iterable[str], token: str) -> set[str]:
    """Return the keys that this group inserted: its token is new, so nobody else can hold it."""
    mine = select(Inbox.key).where(Inbox.key.in_(list(keys)), Inbox.claim_token == token)
    return set((await tx.execute(mine)).scalars())


def _row(message: Inbound, token: str, lease: timedelta) -> dict[str, Any]:
    return {
        "key": message.key,
        "kind": message.kind,
        "body": message.body,
        "answer": message.answer,
        "state": InboxState.NEW,
        "version": 1,
        "tries": 0,
        "error": "",
        "received_at": message.at,
        "due_at": message.at + lease,
        "claim_token": token,
        "claim_until": message.at + lease,
    }
