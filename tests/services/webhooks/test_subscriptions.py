"""Webhooks over a real service and a real consumer: told once for all attempts, signed, kept while it is down."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import select, text

from bot.rules.access.scopes import PLAIN, Scope
from bot.rules.webhooks.webhooks import signature
from bot.services.access import api_keys, authorization
from bot.services.access.api_keys import NewKey, Principal
from bot.services.runtime.commands import Reply
from bot.services.runtime.event_order import number_all
from bot.services.webhooks import delivery, subscriptions
from bot.services.webhooks.subscriptions import NewWebhook
from ledger.core import record
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import NotificationState
from ledger.models import Webhook, WebhookDelivery
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import ALICE, BOB, CAROL, World, checked_world, world

ATLAS = Actor(ActorKind.CONSUMER, "atlas")
HERMES = Actor(ActorKind.CONSUMER, "hermes")
ADA = Actor(ActorKind.OPERATOR, "ada")
ROOT = Principal("", ADA, ADA, frozenset(Scope))


@dataclass
class Consumer:
    """A program that is told; `status` is what it answers, and it checks every signature that it takes."""

    secret: bytes = b""
    status: int = 200
    retry_after: str = ""
    taken: list[dict[str, Any]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    attempts: int = 0
    url: str = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.attempts += 1
        if self.status == 200:
            at_s = int(headers["webhook-timestamp"])
            right = signature([self.secret], headers["webhook-id"], at_s, body)
            assert right in headers["webhook-signature"].split(" "), "a signature is wrong"
            self.ids.append(headers["webhook-id"])
            self.taken.append(json.loads(body))
        extra = [(b"retry-after", self.retry_after.encode())] if self.retry_after else []
        await send({"type": "http.response.start", "status": self.status, "headers": extra})
        await send({"type": "http.response.body", "body": b"nobody reads this"})

    def types(self) -> list[str]:
        """What it took, in order."""
        return [str(one["type"]) for one in self.taken]


def principal(actor: Actor, owner: Actor = ALICE) -> Principal:
    return Principal("k", actor, owner, frozenset(PLAIN))


@asynccontextmanager
async def told(w: World) -> AsyncIterator[Consumer]:
    """A consumer on this machine, where the policy lets webhooks go for once."""
    w.tune(webhook_networks=("127.0.0.1/32",))
    consumer = Consumer()
    async with serving(consumer) as url:
        consumer.url = f"{url}/hooks"
        yield consumer


async def hook(w: World, consumer: Consumer, who: Principal, *topics: str) -> str:
    made = await subscriptions.create(w.ctx, who, NewWebhook(consumer.url, topics))
    assert made.ok, made
    consumer.secret = _secret(made)
    return str(made.data["webhook_id"])


def _secret(made: Reply) -> bytes:
    return base64.b64decode(str(made.data["secret"]).removeprefix("whsec_"))


async def pump(w: World) -> None:
    """What the ticker does for webhooks, until nothing is due."""
    await spread(w)
    while await delivery.deliver_due(w.ctx):
        pass


async def spread(w: World) -> int:
    """Number what happened, and make the deliveries of it."""
    await number_all(w.ctx)
    return await delivery.fan_out(w.ctx)


async def program(w: World, name: str) -> None:
    made = await api_keys.create(w.ctx.db, w.ctx.labels, NewKey(name, "operator:ada"), ADA, w.clock.now())
    assert made.ok


async def log_of(w: World, webhook_id: str) -> list[WebhookDelivery]:
    async with w.ctx.db.read() as tx:
        found = await tx.scalars(select(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id))
        return sorted(found, key=lambda one: one.id)


@pytest.mark.both_databases
async def test_a_consumer_hears_of_its_own_things(w: World) -> None:
    await program(w, "atlas")
    w.tune(budgets={"consumer:atlas": {"total": Decimal(20)}}, budget_thresholds=(Decimal("0.01"),))
    async with told(w) as atlas, told(w) as all_of_it:
        hook_id = await hook(w, atlas, principal(ATLAS), "session", "approval", "budget")
        await hook(w, all_of_it, ROOT)
        w.use({"vast": w.ctx.providers["vast"]})
        await w.running(ATLAS)
        await w.ask()
        await pump(w)
        heard = {"request.made", "request.pending", "request.approved", "session.running", "budget.threshold"}
        assert heard <= set(atlas.types())
        owners = {one["data"].get("request", {}).get("requester", "consumer:atlas") for one in atlas.taken}
        assert owners == {"consumer:atlas"}
        running = next(one["data"] for one in atlas.taken if one["type"] == "session.running")
        assert (running["session"]["state"], running["before"]) == ("running", "provisioning")
        assert "ssh" not in json.dumps(running)
        assert sorted(all_of_it.types()) == sorted([*atlas.types(), "request.made"])
        # Nothing is told twice: not by a second replica, nor by a later look over the same time.
        before = len(atlas.taken)
        w.clock.advance(20)
        other = w.replica()
        await spread(other)
        await other.ctx.db.close()
        await pump(w)
        assert (len(atlas.taken), len(set(atlas.ids))) == (before, before)
        # A program without a working key hears nothing; what happened meanwhile is told when it has one again.
        (key,) = [one for one in await api_keys.listing(w.ctx.db, w.clock.now()) if one.actor == ATLAS.ref]
        await api_keys.revoke(w.ctx.db, key.id, ADA, w.clock.now())
        await w.end(str(running["request"]["id"]), actor=ATLAS)
        await pump(w)
        assert len(atlas.taken) == before
        await program(w, "atlas")
        await pump(w)
        assert atlas.types()[before:] == ["session.terminating"]
        assert (await subscriptions.delete(w.ctx, principal(HERMES), hook_id)).code == "unknown_webhook"
        assert (await subscriptions.delete(w.ctx, principal(ATLAS), hook_id)).ok
        assert await log_of(w, hook_id) == []


async def test_a_sentence_in_a_message_names_people_and_ids_stay(w: World) -> None:
    async with told(w) as all_of_it:
        await hook(w, all_of_it, ROOT)
        await w.ctx.names.keep(w.ctx.db, w.clock, "U0BOB", "bob")
        asked = str((await w.ask()).data["request_id"])
        await w.settle()
        assert (await w.cancel(asked, ALICE, "slack:T1/U0BOB asked for it.")).ok
        await pump(w)
        (over,) = [one["data"] for one in all_of_it.taken if one["type"] == "request.cancelled"]
        assert (over["reason"], over["actor"]) == ("bob asked for it.", ALICE.ref)


async def test_an_approver_who_leaves_hears_of_nobody_else_and_without_a_key_of_nothing(w: World) -> None:
    w.tune(approvers=(BOB.id, "operator:ada"), max_open_requests_per_user=9)
    async with told(w) as consumer:
        key = await api_keys.create(
            w.ctx.db, w.ctx.labels, NewKey("operator:ada", scopes=(*PLAIN, "approvals:write")), ADA, w.clock.now()
        )
        ada = await api_keys.authenticate(w.ctx.db, w.ctx.labels, str(key.data["token"]), w.clock.now())
        assert ada is not None
        await hook(w, consumer, ada, "approval")
        plain = Principal("k", ADA, ADA, frozenset(PLAIN))
        assert not authorization.sees_all(w.ctx.policy, plain)
        await w.ask(candidates=("vast",))
        await pump(w)
        assert consumer.types() == ["request.made"]
        w.tune(approvers=(BOB.id, CAROL.id))
        w.clock.advance(3600)
        await w.ask(candidates=("vast",))
        await w.ask(ADA, candidates=("vast",))
        await pump(w)
        assert [one["data"]["request"]["requester"] for one in consumer.taken[1:]] == [ADA.ref]
        # What waits for its holder's next key is kept as long as a message is tried, and then given up.
        await w.ask(ADA, candidates=("vast",))
        await spread(w)
        await api_keys.revoke(w.ctx.db, str(key.data["key_id"]), ADA, w.clock.now())
        await w.ask(ADA, candidates=("vast",))
        await pump(w)
        w.clock.advance(76 * 3600)
        await pump(w)
        assert len(consumer.taken) == 2
        async with w.ctx.db.read() as tx:
            (kept,) = await tx.scalars(select(WebhookDelivery).where(WebhookDelivery.state != "sent"))
        assert (kept.state, kept.tries) == (NotificationState.DEAD, 0)


async def test_an_operator_of_the_server_hears_of_everything_until_a_key_says_what_they_may(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w, told(w) as consumer:
        hook_id = await hook(w, consumer, ROOT, "approval")
        w.tune(max_open_requests_per_user=9)

        async def heard() -> list[str]:
            """Whose requests are told of when Alice and the operator ask for something."""
            w.clock.advance(1)
            before = len(consumer.taken)
            for actor in (ALICE, ROOT.actor):
                assert (await w.ask(actor, candidates=("vast",))).ok
            await pump(w)
            return sorted(one["data"]["request"]["requester"] for one in consumer.taken[before:])

        assert await heard() == sorted([ALICE.ref, ROOT.actor.ref])  # On the server nobody needs a key.
        key = await api_keys.create(w.ctx.db, w.ctx.labels, NewKey(ROOT.actor.ref, scopes=PLAIN), ADA, clock.now())
        assert await heard() == [ROOT.actor.ref]
        await api_keys.revoke(w.ctx.db, str(key.data["key_id"]), ADA, clock.now())
        assert await heard() == []
        assert (await subscriptions.delete(w.ctx, principal(ALICE), hook_id)).code == "unknown_webhook"
        carol = Actor(ActorKind.OPERATOR, "carol")
        assert (await subscriptions.delete(w.ctx, Principal("", carol, carol, frozenset(Scope)), hook_id)).ok


async def test_a_consumer_that_is_down_for_a_day_loses_nothing(w: World) -> None:
    async with told(w) as consumer:
        w.use({"vast": w.ctx.providers["vast"]})
        hook_id = await hook(w, consumer, ROOT, "approval")
        consumer.status = 503
        for _ in range(3):
            await w.ask()
        end = w.clock.now() + timedelta(hours=24)
        while w.clock.now() < end:
            await pump(w)
            due = [one.due_at for one in await log_of(w, hook_id) if one.due_at]
            w.clock.advance(max(min(due) - w.clock.now(), timedelta(seconds=1)))
        made = {one.id for one in await log_of(w, hook_id)}
        assert len(made) == 3
        assert consumer.taken == []
        assert consumer.attempts < 30  # It is not hammered while it is down.
        consumer.status = 200
        for one in await log_of(w, hook_id):
            w.clock.advance(max((one.due_at or w.clock.now()) - w.clock.now(), timedelta(0)))
            await pump(w)
        assert set(consumer.ids) == made
        assert consumer.types() == ["request.made"] * 3
        states = {(one.state, one.due_at, one.attempts[-1]["outcome"]) for one in await log_of(w, hook_id)}
        assert states == {(NotificationState.SENT, None, "200")}
        # One of them again, on demand, under the same id.
        assert (await subscriptions.replay(w.ctx, ROOT, hook_id, min(made))).ok
        await pump(w)
        assert consumer.ids[-1] == min(made)
        assert (await subscriptions.replay(w.ctx, ROOT, hook_id, "dlv_0000000000000000")).code == "unknown_delivery"
        w.clock.advance(31 * 86400)
        assert await delivery.forget_due(w.ctx) == 3
    await w.run(10)


async def test_a_webhook_that_nobody_can_sign_for_keeps_no_other_back(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w, told(w) as consumer:
        broken = await hook(w, consumer, ROOT, "approval")
        whole = await hook(w, consumer, ROOT, "approval")
        async with w.ctx.db.write() as tx:
            (await tx.get_one(Webhook, broken)).secret = "made with another label key"
        await w.ask(candidates=("vast",))
        await pump(w)
        assert consumer.types() == ["request.made"]
        assert [one.state for one in await log_of(w, whole)] == [NotificationState.SENT]
        (kept,) = await log_of(w, broken)
        assert (kept.state, kept.tries) == (NotificationState.PENDING, 1)
        assert kept.due_at is not None
        assert kept.due_at > w.clock.now()


async def test_a_consumer_of_a_name_of_before_gets_it_beside_the_name_of_now(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    """Also one whose subscription was stored before its topic had another name; each event is one message."""
    async with world(sqlite_db, clock) as w, told(w) as before, told(w) as now:
        old_id = await hook(w, before, ROOT, "drift", "budget")
        await hook(w, now, ROOT, "instance", "budget")
        async with w.ctx.db.write() as tx:
            (await tx.get_one(Webhook, old_id)).topics = ["budget", "drift"]
        at, subject = w.clock.now(), "ins_0000000000000000"
        async with w.ctx.db.write() as tx:
            for states in (("sending", "unknown"), ("unknown", "live"), ("live", "gone"), ("terminating", "gone")):
                record(tx, at, ADA, subject, EventKind.INSTANCE_MOVED, before=states[0], after=states[1])
            record(tx, at, ADA, subject, EventKind.SPEND_OVER)
        before.status = 500
        await pump(w)
        assert before.taken == []
        before.status = 200
        w.clock.advance(60)
        await pump(w)
        for consumer in (before, now):
            assert sorted((one["type"], one["name"]) for one in consumer.taken) == [
                ("drift.found_again", "instance.found_again"),
                ("drift.lost", "instance.lost"),
                ("drift.unclear", "instance.unknown_outcome"),
                ("spend.drift", "spend.overspend"),
            ]
            assert len(set(consumer.ids)) == len(consumer.ids) == 4


async def test_one_that_stays_away_is_switched_off_and_comes_back(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w, told(w) as consumer:
        w.use({"vast": w.ctx.providers["vast"]})
        hook_id = await hook(w, consumer, ROOT, "orphan")
        consumer.status, consumer.retry_after = 429, "600"
        assert (await subscriptions.test(w.ctx, ROOT, hook_id)).ok
        await pump(w)
        (row,) = await log_of(w, hook_id)
        assert (row.due_at or w.clock.now()) - w.clock.now() == timedelta(seconds=600)  # As it was asked.
        consumer.status, consumer.retry_after = 500, ""
        began = w.clock.now()
        while row.state is NotificationState.PENDING:
            w.clock.advance((row.due_at or w.clock.now()) - w.clock.now())
            await pump(w)
            (row,) = await log_of(w, hook_id)
        assert (consumer.attempts, row.state) == (10, NotificationState.DEAD)
        assert 65 < (w.clock.now() - began) / timedelta(hours=1) < 85
        assert (await subscriptions.test(w.ctx, ROOT, hook_id)).code == "webhook_off"
        await w.settle()
        assert ("operator.page", f"{hook_id}/off") in [(kind, subject) for kind, subject, *_ in w.board.shown]
        consumer.status = 200
        assert (await subscriptions.replay(w.ctx, ROOT, hook_id)).ok
        await pump(w)
        assert consumer.taken[0]["type"] == "webhook.test"
        consumer.status = 410
        for _ in range(2):
            assert (await subscriptions.test(w.ctx, ROOT, hook_id)).ok
        await delivery.deliver_due(w.ctx)
        async with w.ctx.db.read() as tx:
            off = await tx.get_one(Webhook, hook_id)
        assert off.off_reason == "it answered 410 Gone."
        assert {one.state for one in await log_of(w, hook_id)} == {NotificationState.SENT, NotificationState.DEAD}


async def test_secrets_are_shown_once_and_turned_over(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w, told(w) as consumer:
        hook_id = await hook(w, consumer, ROOT)
        old = consumer.secret
        turned = await subscriptions.rotate(w.ctx, ROOT, hook_id)
        for secret, later_s in ((old, 0), (_secret(turned), 0), (_secret(turned), 25 * 3600)):
            w.clock.advance(later_s)
            consumer.secret = secret
            assert (await subscriptions.test(w.ctx, ROOT, hook_id)).ok
            await pump(w)
        assert len(consumer.taken) == 3
        async with w.ctx.db.read() as tx:
            stored = str((await tx.execute(text("SELECT * FROM webhooks"))).all())
        assert str(turned.data["secret"]).removeprefix("whsec_") not in stored
        # The name may point inside by the time of the call: it is refused there, and tried again.
        w.tune(webhook_networks=())
        assert (await subscriptions.test(w.ctx, ROOT, hook_id)).ok
        await pump(w)
        newest = (await log_of(w, hook_id))[-1]
        assert (newest.state, newest.tries) == (NotificationState.PENDING, 1)
        assert "https://" in newest.attempts[0]["outcome"]


async def test_what_cannot_be_named(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w:
        for url, topics, code in (
            ("https://127.0.0.1/", (), "bad_url"),
            ("https://localhost/", (), "bad_url"),
            ("https://no-such-host.invalid/", (), "bad_url"),
            ("https://1.1.1.1/", ("weather",), "bad_topic"),
        ):
            assert (await subscriptions.create(w.ctx, ROOT, NewWebhook(url, topics))).code == code
        for number in range(subscriptions.MOST):
            assert (await subscriptions.create(w.ctx, principal(ATLAS), NewWebhook(f"https://1.1.1.1/{number}"))).ok
        over = await subscriptions.create(w.ctx, principal(ATLAS), NewWebhook("https://1.1.1.1/"))
        assert over.code == "too_many_webhooks"
        assert (await subscriptions.rotate(w.ctx, principal(HERMES), "whk_0")).code == "unknown_webhook"
        assert (await subscriptions.test(w.ctx, principal(HERMES), "whk_0")).code == "unknown_webhook"
        assert (await subscriptions.replay(w.ctx, principal(HERMES), "whk_0")).code == "unknown_webhook"
        assert await spread(w) == 0
