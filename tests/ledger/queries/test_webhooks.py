"""Webhooks and their deliveries."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from ledger.core import claim_deliveries
from ledger.engine.db import Database
from ledger.kernel.states import NotificationState
from ledger.models import ApiKey, Webhook, WebhookDelivery
from ledger.queries.access import Whose
from ledger.queries.webhooks import (
    add_deliveries,
    again,
    count_webhooks,
    deliveries,
    forget,
    listening,
    read_until,
    remove,
    scopes_of_holders,
    webhook,
    webhooks,
)
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import somebody_waits

SECOND = timedelta(seconds=1)
NOW = START + timedelta(hours=1)
ADA, BEN, OPERATOR = rows.ADA.ref, rows.BEN.ref, "operator:root"
SENT, DEAD, PENDING = NotificationState.SENT, NotificationState.DEAD, NotificationState.PENDING


def hook(name: str, actor: str = ADA, **values: Any) -> Webhook:
    facts = {"url": "https://example.com", "topics": ["*"], "secret": "s", "created_at": START, "created_by": actor}
    return Webhook(id=name, actor=actor, **facts, **{"seen_at": START} | values)


def key(name: str, actor: str, *scopes: str, expires_at: datetime = NOW + SECOND, **values: Any) -> ApiKey:
    made = {"secret_hash": "0" * 64, "created_at": START, "created_by": OPERATOR}
    return ApiKey(id=name, actor=actor, scopes=list(scopes), expires_at=expires_at, **made, **values)


def delivery(name: str, of: str, event_id: str = "", state: NotificationState = PENDING, **values: Any) -> Any:
    facts = {"kind": "x", "tries": 3, "attempts": [], "created_at": START, "due_at": None} | values
    return {"id": name, "webhook_id": of, "event_id": event_id or f"evt_{name}", "state": state, **facts}


async def test_webhooks_that_may_receive_events(db: Database) -> None:
    async with db.write() as tx:
        tx.add_all(
            [
                hook("whk_2", ADA),
                hook("whk_1", ADA, off_at=START),
                hook("whk_3", BEN),
                hook("whk_4", OPERATOR),
                hook("whk_5", "operator:expired"),
                hook("whk_6", "slack:T1/UNEW"),
                key("k1", ADA, "requests:read", "costs:read"),
                key("k2", ADA, "sessions:read"),
                key("k3", ADA, "keys:write", revoked_at=START),
                key("k4", BEN, "requests:read", revoked_at=START),
                key("k5", "operator:expired", "requests:read", expires_at=NOW),
            ]
        )
    async with db.read() as tx:
        assert [one.id for one in await listening(tx, NOW)] == ["whk_2", "whk_4"]
        assert [one.id for one in await listening(tx, NOW - SECOND)] == ["whk_2", "whk_4", "whk_5"]
        assert [one.id for one in await listening(tx, NOW, OPERATOR)] == ["whk_4"]
        assert await listening(tx, NOW, BEN) == []
        assert await scopes_of_holders(tx, [ADA, BEN, OPERATOR, "operator:expired"], NOW) == {
            ADA: {"requests:read", "costs:read", "sessions:read"},
            BEN: set(),
            OPERATOR: None,
            "operator:expired": set(),
        }
        whose = Whose.of([rows.ADA])
        assert [one.id for one in await webhooks(tx, whose)] == ["whk_1", "whk_2"]
        assert [one.id for one in await webhooks(tx, None)] == [f"whk_{n}" for n in range(1, 7)]
        assert (await count_webhooks(tx, ADA), await count_webhooks(tx, "slack:T1/UCY")) == (2, 0)
        for name, whom, is_found in (
            ("whk_2", whose, True),
            ("whk_3", whose, False),
            ("whk_3", None, True),
            ("whk_0", None, False),
        ):
            found = await webhook(tx, name, whom)
            assert (found.id if found else None) == (name if is_found else None)


async def test_a_delivery_is_made_once_and_reading_goes_forward_only(db: Database) -> None:
    async with db.write() as tx:
        tx.add_all([hook("whk_1"), hook("whk_2", position=7)])
        await tx.flush()
        assert await add_deliveries(tx, [delivery("d1", "whk_1", "evt_1"), delivery("d2", "whk_2", "evt_2")]) == 2
        # Another replica has made it meanwhile.
        assert await add_deliveries(tx, [delivery("d3", "whk_1", "evt_1"), delivery("d4", "whk_2", "evt_1")]) == 1
        assert await add_deliveries(tx, []) == 0
        await read_until(tx, "whk_1", 5)
        await read_until(tx, "whk_1", 3)
    async with db.read() as tx:
        assert [(hook.id, hook.position) for hook in await webhooks(tx, None)] == [("whk_1", 5), ("whk_2", 7)]


async def test_two_replicas_make_one_delivery(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        tx.add(hook("whk_1"))

    async def add() -> int:
        async with pg_db.write() as tx:
            return await add_deliveries(tx, [delivery("d2", "whk_1", "evt_1"), delivery("d3", "whk_1", "evt_2")])

    async with pg_db.write() as tx:
        assert await add_deliveries(tx, [delivery("d1", "whk_1", "evt_1")]) == 1
        adding = asyncio.create_task(add())
        await somebody_waits(pg_db, adding)
    assert await adding == 1


async def test_deliveries_are_shown_repeated_and_forgotten(db: Database) -> None:
    async with db.write() as tx:
        tx.add_all([hook("whk_1"), hook("whk_2")])
        await tx.flush()
        old: dict[str, Any] = {"created_at": START - SECOND}
        await add_deliveries(
            tx,
            [
                delivery("d1", "whk_1", state=DEAD),
                delivery("d2", "whk_1", state=SENT, **old),
                delivery("d3", "whk_1", state=DEAD, **old),
                delivery("d4", "whk_1", **old),
                delivery("d5", "whk_2", state=DEAD),
                delivery("d6", "whk_2", state=SENT, **old),
            ],
        )
    async with db.write() as tx:
        for failed, before, limit, expected in (
            (False, None, 9, ["d4", "d3", "d2", "d1"]),
            (False, "d4", 2, ["d3", "d2"]),
            (True, None, 9, ["d3", "d1"]),
            (True, "d3", 9, ["d1"]),
        ):
            found = await deliveries(tx, "whk_1", failed=failed, before=before, limit=limit)
            assert [one.id for one in found] == expected
        assert await again(tx, "whk_1", "d5", NOW) == 0
        assert await again(tx, "whk_1", "d2", NOW) == 1
        assert await again(tx, "whk_1", None, NOW) == 2
    async with db.read() as tx:
        every = {one.id: (one.state, one.tries, one.due_at) for one in await tx.scalars(select(WebhookDelivery))}
        assert every == {
            **dict.fromkeys(("d1", "d2", "d3"), (PENDING, 0, NOW)),
            "d4": (PENDING, 3, None),
            "d5": (DEAD, 3, None),
            "d6": (SENT, 3, None),
        }
    async with db.write() as tx:
        # What waits is not forgotten, however old.
        assert await forget(tx, START) == 1
        assert await forget(tx, NOW) == 1
        await add_deliveries(tx, [delivery("d7", "whk_2")])
        await remove(tx, "whk_1")
    async with db.read() as tx:
        assert [one.id for one in await webhooks(tx, None)] == ["whk_2"]
        assert list(await tx.scalars(select(WebhookDelivery.id))) == ["d7"]


async def test_claimed_deliveries_are_shared_among_webhooks(db: Database) -> None:
    async def take(limit: int, after_s: int = 0) -> list[str]:
        now = NOW + after_s * SECOND
        held = await claim_deliveries(db, now=now, share=2, limit=limit, lease=30 * SECOND)
        return sorted(one.row_id for one in held)

    due = [("a1", "whk_1"), ("a2", "whk_1"), ("a3", "whk_1"), ("b1", "whk_2")]
    async with db.write() as tx:
        tx.add_all([hook("whk_1"), hook("whk_2", BEN)])
        await tx.flush()
        tx.add_all([WebhookDelivery(**delivery(name, of, due_at=NOW)) for name, of in due])
        tx.add(WebhookDelivery(**delivery("b2", "whk_2", due_at=NOW + SECOND)))
    assert await take(2) == ["a1", "b1"]  # The first of each, before the second of any.
    assert await take(9) == ["a2"]  # Two of the first webhook are under way now, and no third.
    assert await take(9, after_s=5) == ["b2"]
    # Their workers are gone. The third was due all the while, so it comes before one of the first two.
    assert await take(9, after_s=31) == ["a1", "a3", "b1"]
    assert await claim_deliveries(db, now=START, share=2, limit=9, lease=SECOND) == []
