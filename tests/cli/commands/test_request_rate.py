"""One rate of requests: REST, the command line here and elsewhere, and MCP refuse with one sentence."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.cli.access.api_client import ApiClient, agent_header
from bot.cli.access.settings import operator
from bot.cli.commands.mcp import Tools
from tests.api.door import JOB
from tests.cli.test_doors import Terminal, elsewhere, terminal
from tests.support.serving import serving
from tests.support.world import ALICE

__all__ = ["elsewhere", "terminal"]

SENTENCE = (
    "You made 2 requests within an hour, and the policy allows no more (max_requests_per_hour). "
    "The next one is possible in 1 hour."
)


@pytest.fixture
async def limited(terminal: Terminal) -> AsyncIterator[Terminal]:
    """The operator, who is Alice in Slack, may make two requests in an hour."""
    terminal.w.tune(max_requests_per_hour=2, same_person=((ALICE.id, operator().ref),))
    async with serving(build_api(Dependencies(terminal.w.ctx, ApiSettings("C0GPU")), {})) as url:
        terminal.url = url
        yield terminal


async def test_every_client_refuses_with_the_same_sentence_and_programs_read_when_to_retry(limited: Terminal) -> None:
    t = limited
    assert (await t.w.ask(ALICE)).ok  # In Slack.
    t.far()
    await t.good("provision", "1x4090 2h")
    code, _, err = await t.run("provision", "1x4090 2h")
    assert (code, SENTENCE in " ".join(err.split())) == (69, True), (code, err)
    headers = {"Authorization": f"Bearer {t.key}", "Idempotency-Key": "third"}
    async with httpx.AsyncClient(base_url=t.url, headers=headers) as http:
        answer = await http.post("/api/v1/sessions", json=JOB)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")
        assert (answer.json()["detail"], answer.headers["Retry-After"]) == (SENTENCE, "3600")
        again = await http.post("/api/v1/requests/again", json={}, headers={"Idempotency-Key": "fourth"})
        assert (again.status_code, again.json()["detail"]) == (429, SENTENCE)
    headers = {"Authorization": f"Bearer {t.key}", **agent_header(is_agent=True)}
    async with httpx.AsyncClient(base_url=t.url, headers=headers) as http:
        asked = await Tools(ApiClient(http)).submit_request("1x4090 2h", "a trial")
        assert asked == f"Refused (too_many_requests): {SENTENCE}"
    refused = await t.w.ask(ALICE)
    assert (refused.code, refused.sentence) == ("too_many_requests", SENTENCE)
    assert len((await t.w.books()).requests) == 2
    t.w.clock.advance(3600)
    assert re.match("Request ", await t.good("provision", "1x4090 2h"))
