"""One user's slow names and one webhook that never answers delay nobody else."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

from bot.outbound.egress import EgressResponse
from bot.outbound.names import PER_USER
from bot.services.webhooks import delivery, subscriptions
from bot.services.webhooks.subscriptions import NewWebhook, delivery_row
from ledger.engine.db import Database
from ledger.kernel.ids import new_id
from ledger.kernel.states import NotificationState
from ledger.models import Webhook
from ledger.queries.webhooks import add_deliveries, webhooks
from tests.services.webhooks.test_subscriptions import ATLAS, HERMES, ROOT, hook, log_of, principal, told
from tests.support.clock import SteppedClock
from tests.support.slow_names import SLOW, slow_names
from tests.support.world import World, checked_world


async def test_slow_names_delay_nobody_else_and_store_nothing(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w:
        with slow_names() as asked:
            hooks = [NewWebhook(f"https://h{number}{SLOW}/") for number in range(40)]
            waiting = [asyncio.create_task(subscriptions.create(w.ctx, principal(ATLAS), one)) for one in hooks]
            refused = [await one for one in islice(asyncio.as_completed(waiting), len(hooks) - PER_USER)]
            assert {one.code for one in refused} == {"resolver_busy"}
            assert len(asked) == PER_USER
            # Clouds and Slack resolve their names in the event loop's own threads, which are all free.
            async with asyncio.timeout(2):
                await asyncio.get_running_loop().getaddrinfo("localhost", 443)
                assert (await subscriptions.create(w.ctx, principal(HERMES), NewWebhook("https://1.1.1.1/"))).ok
        assert {(await one).ok for one in waiting} == {False}
        async with w.ctx.db.read() as tx:
            assert [one.actor for one in await webhooks(tx, None)] == [HERMES.ref]


async def test_a_receiver_that_never_answers_delays_no_other(w: World) -> None:
    async with told(w) as consumer:
        tarpit = await hook(w, consumer, ROOT, "budget")
        tarpit_url = consumer.url + "/tarpit"
        async with w.ctx.db.write() as tx:
            row = await tx.get_one(Webhook, tarpit)
            row.url = tarpit_url
            many = [
                delivery_row(row, new_id("dlv", w.clock.now()), f"tst_{n}", "test", w.clock.now()) for n in range(300)
            ]
            await add_deliveries(tx, many)
        w.clock.advance(1)
        other = await hook(w, consumer, ROOT, "budget")
        assert (await subscriptions.test(w.ctx, ROOT, other)).ok
        called: list[str] = []
        over, heard = asyncio.Event(), asyncio.Event()

        async def send(url: str, *_: Any, **__: Any) -> EgressResponse:
            called.append(url)
            if url == tarpit_url:
                await over.wait()
            else:
                heard.set()
            return EgressResponse(200)

        runs = [asyncio.create_task(delivery.deliver_due(w.ctx, send)) for _ in range(delivery.WIDTH)]
        async with asyncio.timeout(10):
            await heard.wait()
        # Runs at the same moment, as those of two replicas, may exceed the share for one batch.
        assert called.count(tarpit_url) <= delivery.SHARE * 2
        assert await delivery.deliver_due(w.ctx, send) == 0
        over.set()
        assert sum(await asyncio.gather(*runs)) == len(called)
        async with asyncio.timeout(60):
            while await delivery.deliver_due(w.ctx, send):
                pass
        assert {one.state for one in await log_of(w, tarpit)} == {NotificationState.SENT}
        assert len(called) == len(many) + 1
