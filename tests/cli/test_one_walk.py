"""One walk seen at all doors: what Slack shows, what REST answers and what a terminal prints are the same words."""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.cli.lazy import build
from bot.practice.reader import all_text
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import place_name, rate, usd
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from bot.slack.blocks.elements import safe
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.ids import short_id
from tests.slack.conftest import Stage, staged
from tests.support.clock import SteppedClock
from tests.support.serving import serving

ADA = Actor(ActorKind.OPERATOR, "ada")
EVERYTHING = ("admin", "approvals:write")
#: What somebody may type after `provision`, at any door.
NONSENSE = (
    "RTX9999 2h",
    "4090 10000h",
    "4090 2h clouds=autodl",
    '4090 2h for="no end',
    "4090",
)


@dataclass
class Doors:
    """Slack with its people, and a service that programs and terminals speak to."""

    stage: Stage
    url: str
    keys: dict[str, str]
    monkeypatch: pytest.MonkeyPatch

    async def rest(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        """One call."""
        headers = {"Authorization": f"Bearer {self.keys[who]}", "Idempotency-Key": f"{who} {path} {more}"}
        async with httpx.AsyncClient(base_url=f"{self.url}/api/v1", headers=headers, trust_env=False) as http:
            return await http.request(method, path, **more)

    async def cli(self, who: str, *arguments: str) -> tuple[int, str, str]:
        """One command: its exit code, and what it prints on both streams."""
        self.monkeypatch.setenv("GPU_SHOPPER_URL", self.url)
        self.monkeypatch.setenv("GPU_SHOPPER_API_KEY", self.keys[who])
        result = await asyncio.to_thread(CliRunner().invoke, build(), arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.stdout, result.stderr

    async def printed(self, who: str, *arguments: str) -> str:
        """What a command prints that succeeds."""
        code, out, err = await self.cli(who, *arguments)
        assert code == 0, (arguments, err)
        return out

    def slack(self) -> str:
        """The newest message in the channel with its thread, as people read it."""
        card = self.stage.message()
        return html.unescape("\n".join(all_text(one) for one in (card, *self.stage.ws.thread(card))))

    async def typed(self, who: str, line: str) -> str:
        """What Slack answers to one person."""
        await self.stage.command(who, line)
        return html.unescape(all_text(self.stage.ws.ephemerals(who)[-1]))


@pytest.fixture
async def doors(sqlite_db: Database, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Doors]:
    """Bob decides in Slack, ben at a terminal, root sees all and decides nothing; atlas is a program of ada's."""
    # The terminal of the tests may have another width.
    monkeypatch.delenv("COLUMNS", raising=False)
    policy = Policy(approvers=("U0BOB", "operator:ben"))
    async with staged(sqlite_db, clock, policy=policy) as stage:
        keys = {}
        await stage.door.meet_approvers()
        for name, owner, scopes in (
            ("atlas", ADA.ref, ()),
            ("operator:ben", "", ()),
            ("operator:root", "", EVERYTHING),
        ):
            wanted = NewKey(name, owner, scopes)
            made = await api_keys.create(sqlite_db, stage.ctx.labels, wanted, ADA, clock.now())
            keys[name.rpartition(":")[2]] = str(made.data["token"])
        async with serving(build_api(Dependencies(stage.ctx, ApiSettings("C0GPU")), {})) as url:
            yield Doors(stage, url, keys, monkeypatch)


async def same_everywhere(d: Doors, request_id: str) -> dict[str, Any]:
    """A waiting request at every door: each option's numbers, the rule, the reason. Returns what REST answers."""
    shown: dict[str, Any] = (await d.rest("atlas", "GET", f"/requests/{request_id}")).json()
    assert json.loads(await d.printed("atlas", "request", request_id, "--json")) == shown
    d.stage.w.clock.advance(2)
    await d.stage.settle()  # The details are a reply in the card's thread.
    terminal, slack = await d.printed("atlas", "request", request_id, "--verbose"), d.slack()
    assert shown["options"]
    for option in shown["options"]:
        amounts = [usd(Decimal(option[name])) for name in ("expected_usd", "worst_usd")]
        words = (
            rate(Decimal(option["price_usd_h"])),
            f"{option['gpu_count']}",
            place_name(option["region"], option["country"]),
            *amounts,
        )
        for text in (terminal, slack):
            assert [word for word in words if word not in text] == [], text
        assert option["offer_id"] in terminal
        assert option["why"] in terminal
    for words in (shown["waiting"]["rule"], shown["reason"], *shown["excluded"]):
        assert words in terminal
        assert words in slack
    return shown


async def test_one_walk_at_every_door(doors: Doors) -> None:
    d, w = doors, doors.stage.w
    asked = await d.printed("atlas", "provision", "1x4090 2h clouds=vast for='one more epoch'", "--json")
    request_id = json.loads(asked)["request_id"]
    await d.stage.settle()
    shown = await same_everywhere(d, request_id)

    # Who may not decide reads the same at every door, and nothing is bought.
    offer = shown["options"][0]["offer_id"]
    await d.stage.click("dave", d.stage.message(), "approve:1")
    told = html.unescape(all_text(d.stage.ws.ephemerals("dave")[-1]))
    refused = await d.rest("root", "POST", f"/requests/{request_id}/approve", json={"offer_id": offer})
    read = ("--quote-version", str(shown["quote_version"]))
    code, _, err = await d.cli("root", "approve", request_id, "--option", "1", *read)
    assert (refused.status_code, code, err.startswith(refused.json()["detail"])) == (403, 77, True)
    assert safe(refused.json()["detail"], 600).replace(": bob,", ": <@U0BOB>,") in told
    assert w.engine.creates == []

    # A click in Slack decides it; every door says by whom.
    await d.stage.click("bob", d.stage.message(), "approve:1")
    await w.run(40, 20)
    await d.stage.settle()
    decided = (await d.rest("atlas", "GET", f"/requests/{request_id}")).json()
    assert decided["decided_by"].endswith("U0BOB")
    assert "Approved by bob" in await d.printed("atlas", "request", request_id)
    assert "*Approved* by <@U0BOB>" in d.slack()

    session = (await d.rest("atlas", "GET", f"/sessions/{decided['session_id']}")).json()
    terminal, slack = (
        await d.printed("atlas", "session", session["id"]),
        await d.typed("bob", f"/gpu status {request_id}"),
    )
    assert session["state"] == "running"
    for words in (short_id(request_id), rate(Decimal(session["price_usd_h"])), usd(Decimal(session["cost_usd"]))):
        assert words in terminal
        assert words in slack
    assert session["ssh"]["command"] in terminal
    assert session["ssh"]["command"] not in slack

    ended = await d.rest("atlas", "DELETE", f"/sessions/{session['id']}")
    assert ended.status_code == 202
    await w.run(150, 15)
    await d.stage.settle()
    over = (await d.rest("atlas", "GET", f"/sessions/{session['id']}")).json()
    assert over["state"] == "terminated"
    total = usd(Decimal(over["cost_usd"]))
    for text in (await d.printed("atlas", "session", session["id"]), d.slack()):
        assert total in text
    assert w.alive() == []


async def test_a_terminal_decides_and_slack_says_so(doors: Doors) -> None:
    d = doors
    asked = await d.rest("atlas", "POST", "/sessions", json={"words": "1x4090 2h clouds=vast for='another'"})
    request_id = asked.json()["request_id"]
    await d.stage.settle()
    shown = await same_everywhere(d, request_id)
    code, _, err = await d.cli("ben", "reject", request_id)
    refused = await d.rest("ben", "POST", f"/requests/{request_id}/reject", json={"reason": ""})
    assert (code, err.strip()) == (1, refused.json()["detail"])
    offer = shown["options"][0]["offer_id"]
    most = ("--max-usd", shown["options"][0]["worst_usd"])
    said = await d.printed("ben", "approve", request_id, "--option", offer, *most, "--json")
    again = await d.rest("ben", "POST", f"/requests/{request_id}/approve", json={"offer_id": offer})
    code, _, err = await d.cli("ben", "approve", request_id, "--offer", offer)
    assert json.loads(said)["code"] == "approved"
    assert (again.status_code, code, err.strip()) == (409, 1, again.json()["detail"])
    await d.stage.settle()
    assert "Approved by operator ben" in d.slack()


async def test_nonsense_gets_the_same_sentence_at_every_door(doors: Doors) -> None:
    d = doors
    for words in NONSENSE:
        told = await d.typed("alice", f"/gpu provision {words}")
        answer = await d.rest("atlas", "POST", "/sessions", json={"words": words})
        assert answer.status_code == 422, (words, answer.text)
        sentence = answer.json()["detail"]
        code, out, err = await d.cli("atlas", "provision", words)
        assert (code, out, err.strip()) == (2, "", sentence), words
        assert sentence in told, (words, told)
    for command, method, path in (
        ("session", "GET", "/sessions/zzzzzz"),
        ("cancel", "POST", "/requests/zzzzzz/cancel"),
    ):
        answer = await d.rest("atlas", method, path, **({"json": {}} if method == "POST" else {}))
        code, _, err = await d.cli("atlas", command, "zzzzzz")
        told = await d.typed("alice", f"/gpu {'status' if command == 'session' else command} zzzzzz")
        noun = "session" if command == "session" else "request"
        unknown = f'No {noun} "zzzzzz". Run `gpu-shopper {noun}s`.'
        assert (answer.status_code, code, err.strip()) == (404, 2, unknown)
        assert safe(answer.json()["detail"], 600).lower().rstrip(".") in told.lower()
    assert (await d.stage.w.books()).requests == ()
