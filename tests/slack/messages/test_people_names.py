"""People have their names in a terminal, in the sentences of REST, and in what an AI agent reads."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import httpx

from bot.cli.access.api_client import ApiClient
from bot.cli.commands.mcp import Tools
from tests.cli.test_one_walk import Doors, doors  # noqa: F401 # The fixture.

#: An id of Slack, a reference to it, and a mention: none of them says anything to a reader.
AN_ID = re.compile(r"\bU0[A-Z]+\b|\bslack:|<@")


def sentences(value: Any) -> list[str]:
    """Every text of several words in an answer."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in sentences(item)]
    if isinstance(value, list):
        return [text for item in value for text in sentences(item)]
    return [value] if isinstance(value, str) and " " in value else []


async def rented(d: Doors) -> str:
    """Alice's machine that Bob approved and that has ended, with a budget, a webhook, a key and a delegation."""
    stage = d.stage
    card = await stage.ask('/gpu provision 1x4090 2h clouds=vast for="with <@U0BOB|bob>"')
    await stage.click("bob", card, stage.approve_button(card))
    await stage.w.run(120, 20)
    await stage.command("bob", "/gpu delegate <@U0CAROL> 2026-12-01")
    await d.printed("root", "keys", "create", "hermes", "--owner", "U0ALICE")
    made = await d.rest("root", "POST", "/webhooks", json={"url": "https://93.184.216.34/hook"})
    assert made.status_code == 201, made.text
    (session,) = (await stage.w.books()).sessions
    stage.w.clock.advance(1_500)
    await stage.command("bob", f"/gpu terminate {session.id} now")
    await stage.w.run(300, 20)
    return session.short_id


async def test_nobody_is_an_id_outside_of_slack(doors: Doors) -> None:  # noqa: F811 # The fixture.
    d = doors
    d.stage.w.tune(budgets={"user:U0ALICE": {"daily": Decimal(500)}})
    one = await rented(d)
    about = ("request", "session", "audit", "why")
    lines = [f"{command} {one}" for command in about] + ["delegate list", "keys list", "webhooks list", "history"]
    lines += ["requests", "sessions --all", "instances --all", "costs", "budget show", "unreachable list"]
    for line in lines:
        shown = await d.printed("root", *line.split())
        assert not AN_ID.search(shown), (line, shown)
    assert "alice" in await d.printed("root", "costs")
    assert re.search(r"approved.*\bbob\b", await d.printed("root", "audit", one))
    assert "with bob" in await d.printed("root", "request", one)

    paths = ("requests", "sessions", f"audit/{one}", f"requests/{one}", f"requests/{one}/why", "costs", "budgets")
    for path in (*paths, "ledger/summary", "delegations", "keys"):
        found = (await d.rest("root", "GET", f"/{path}")).json()
        assert [text for text in sentences(found) if AN_ID.search(text)] == [], path
    refused = await d.rest("root", "POST", f"/requests/{one}/approve", json={})
    assert not AN_ID.search(refused.json()["detail"]), refused.json()
    document = (await d.rest("root", "GET", f"/requests/{one}")).json()
    assert (document["requester"], document["requester_name"]) == ("slack:T0PRACTICE/U0ALICE", "alice")

    headers = {"Authorization": f"Bearer {d.keys['root']}"}
    async with httpx.AsyncClient(base_url=d.url, headers=headers, trust_env=False) as http:
        tools = Tools(ApiClient(http))
        for told in (await tools.request(one), await tools.requests(), await tools.costs(), await tools.sessions()):
            assert not AN_ID.search(str(told)), told


async def test_a_person_without_a_known_name_is_their_plain_id(doors: Doors) -> None:  # noqa: F811 # The fixture.
    d = doors
    await d.printed("root", "keys", "create", "hermes", "--owner", "U0NEW")
    assert "U0NEW" in await d.printed("root", "keys", "list")
    again = await d.rest("root", "POST", "/keys", json={"name": "hermes", "owner": "U0ELSE"})
    assert "belongs to U0NEW already" in again.json()["detail"], again.text
    owners = {one["owner"] for one in json.loads(await d.printed("root", "keys", "list", "--json"))}
    assert "slack:U0NEW" in owners
