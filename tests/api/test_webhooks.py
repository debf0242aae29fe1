"""Webhooks over REST: what others than their holder may see of them."""

from __future__ import annotations

from bot.rules.access.scopes import PLAIN, Scope
from ledger.engine.db import Database
from tests.api.door import opened
from tests.support.clock import SteppedClock
from tests.support.world import checked_world


async def test_others_see_the_host_of_a_webhook_and_nothing_more_of_its_address(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    url = "http://127.0.0.1:9/services/T0SECRET?key=secret"
    async with checked_world(sqlite_db, clock) as w:
        w.tune(webhook_networks=("127.0.0.1/32",))
        async with opened(w) as door:
            atlas, root = await door.key("atlas"), await door.key("operator:root", scopes=(*PLAIN, Scope.ADMIN))
            made = await door.call("POST", "/webhooks", atlas, json={"url": url})
            assert made.status_code == 201, made.text
            assert [one["url"] for one in (await door.call("GET", "/webhooks", atlas)).json()] == [url]
            others = (await door.call("GET", "/webhooks", root)).json()
        assert [(one["actor"], one["url"]) for one in others] == [("consumer:atlas", "http://127.0.0.1:9/…")]
        reasons = [event.reason for event in (await w.books()).events if event.kind == "webhook.created"]
    assert len(reasons) == 1
    assert reasons[0].endswith(": http://127.0.0.1:9/…")
