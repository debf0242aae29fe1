"""One rental has one short id on every surface that a person reads; what programs store stays accepted."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from datetime import timedelta

import httpx
import pytest

from bot.cli.access.api_client import ApiClient
from bot.cli.commands.mcp import Tools
from bot.practice.reader import all_text
from bot.services.billing import rollup
from bot.services.reports.digest import digest_due
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import SessionState
from ledger.models import Session
from tests.cli.test_one_walk import Doors, doors  # noqa: F401 # The fixture.

#: A long id with its prefix, as programs store it, of a request or a session.
LONG = re.compile(r"\b(?:req|ses)_[0-9a-z]{16}\b")


async def slack_texts(d: Doors, *people: str) -> list[str]:
    """Everything that stands in Slack now: each message as it was edited last, private answers, and the Home tabs."""
    ws = d.stage.ws
    messages = [ws.now(one) for one in ws.all_messages()] + [one for who in people for one in ws.ephemerals(who)]
    shown = [all_text(one) for one in messages]
    for who in people:
        await d.stage.as_(who).open_home()
        await d.stage.settle()
        shown += [all_text(home) for home in [ws.home(who)] if home is not None]
    return [html.unescape(text) for text in shown]


async def terminal_texts(d: Doors, named: str) -> list[str]:
    """Print every command of a terminal that shows rentals."""
    lists = ("requests", "sessions", "sessions --all", "instances", "instances --all", "history")
    about = (f"request {named}", f"session {named}", f"audit {named}")
    return [await d.printed("root", *line.split()) for line in (*lists, *about)]


async def agent_texts(d: Doors, named: str) -> list[str]:
    """Answer every tool of an AI agent that shows rentals."""
    headers = {"Authorization": f"Bearer {d.keys['root']}"}
    async with httpx.AsyncClient(base_url=d.url, headers=headers, trust_env=False) as http:
        tools = Tools(ApiClient(http))
        return [str(await tools.requests()), str(await tools.sessions()), str(await tools.request(named))]


async def ids_in(d: Doors, texts: Iterable[str]) -> set[str]:
    """Return which short ids of any request or session stand in these texts, except inside the name of a machine."""
    books = await d.stage.w.books()
    machines = re.compile("|".join(re.escape(row.name) for row in books.instances) or r"\Z")
    known = {short_id(row.id) for row in books.requests} | {short_id(row.id) for row in books.sessions}
    found = set()
    for text in texts:
        assert not LONG.search(text), text
        found |= {one for one in known if re.search(rf"\b{one}\b", machines.sub("", text))}
    return found


async def everywhere(d: Doors, named: str) -> list[str]:
    """All surfaces at once."""
    lines = ("list team", "history team", f"status {named}", f"audit {named}", f"why {named}")
    for who, line in (("alice", "list"), ("alice", f"status {named}"), *(("bob", line) for line in lines)):
        await d.stage.command(who, f"/gpu {line}")
    texts = await slack_texts(d, "alice", "bob")
    return [*texts, *await terminal_texts(d, named), *await agent_texts(d, named)]


async def only_session(d: Doors) -> Session:
    (session,) = (await d.stage.w.books()).sessions
    return session


async def ready(d: Doors) -> Session:
    """A machine that runs, from a card in Slack."""
    card = await d.stage.ask('/gpu provision 1x4090 3h clouds=vast for="fine-tune"')
    await d.stage.click("bob", card, d.stage.approve_button(card))
    await d.stage.w.run(120, 20)
    session = await only_session(d)
    assert session.state is SessionState.RUNNING
    return session


@pytest.mark.slow
async def test_a_rental_has_one_short_id_from_its_card_to_the_end(doors: Doors) -> None:  # noqa: F811 # The fixture.
    d, stage, w = doors, doors.stage, doors.stage.w
    w.clock.advance(timedelta(hours=14))  # 11 PM, so that the digest of the day comes while it runs.
    w.tune(digest_at="00:30", digest_weekly="", digest_channel="C0GPU")
    session = await ready(d)
    one = short_id(session.request_id)
    assert one != short_id(session.id)
    assert await ids_in(d, await everywhere(d, one)) == {one}

    # A request for more time is approved by its own id, and nothing else names that id.
    await stage.command("alice", f'/gpu extend {one} 1h for="one more epoch"')
    (more,) = [row for row in (await w.books()).requests if row.kind is RequestKind.EXTEND]
    asked = stage.message()
    assert short_id(more.id) in all_text(asked)
    assert await ids_in(d, await everywhere(d, one)) == {one, short_id(more.id)}
    await stage.click("bob", asked, stage.approve_button(asked))
    said = await ids_in(d, [all_text(stage.ws.dm_messages("alice")[-1])])
    assert said <= {one}

    await rollup.roll_due(stage.ctx)
    w.clock.advance(timedelta(hours=1, minutes=35))
    assert await digest_due(stage.ctx) == 1
    await stage.settle()
    (digest,) = [text for text in await slack_texts(d) if "*Running now*" in text]
    assert await ids_in(d, [digest]) == {one}

    # The warning before the end, its buttons, and what is refused.
    session = await only_session(d)
    assert session.deadline is not None
    w.clock.advance(session.deadline - timedelta(minutes=59) - w.clock.now())
    await w.run(30, 10)
    await stage.settle()
    answers = [await d.typed(who, line) for who, line in _refused(one)]
    for command in ("extend {id} 9h", "done {id}", "stop {id}", "start {id}", "shutdown {id}"):
        code, out, err = await d.cli("ben", *command.format(id=one).split())
        answers += [out, err] if code else [out]
    assert await ids_in(d, answers) <= {one}
    assert await ids_in(d, [text for text in await everywhere(d, one) if short_id(more.id) not in text]) == {one}

    await w.run(300, 20)
    await stage.settle()
    assert (await only_session(d)).state is SessionState.TERMINATED
    code, out, err = await d.cli("ben", "shutdown", one)
    assert (code, one in err) == (1, True), (out, err)
    texts = await everywhere(d, one)
    assert await ids_in(d, [text for text in texts if short_id(more.id) not in text]) == {one}
    assert sum(one in text for text in texts) > 10


async def test_the_id_of_the_session_names_the_rental_as_well(doors: Doors) -> None:  # noqa: F811 # The fixture.
    d, stage = doors, doors.stage
    session = await ready(d)
    one = short_id(session.request_id)
    for named in (session.id, short_id(session.id)):
        assert f"Session {one} of " in await d.printed("root", "session", named)
        assert f"Request {one} by " in await d.printed("root", "request", named)
        assert "Ended sessions" not in await d.typed("alice", f"/gpu status {named}")
        assert f"`{one}`" in await d.typed("alice", f"/gpu status {named}")
        body = (await d.rest("root", "GET", f"/sessions/{named}")).json()
        assert (body["id"], body["request_id"]) == (session.id, session.request_id)
    await stage.command("alice", f"/gpu extend {short_id(session.id)} 1h for=more")
    assert any(row.kind is RequestKind.EXTEND for row in (await stage.w.books()).requests)
    said = await d.printed("ben", "shutdown", short_id(session.id))
    assert f"Ending session {one}." in said


def _refused(one: str) -> list[tuple[str, str]]:
    """What somebody types who may not, or at the wrong time."""
    lines = ("terminate", "stop", "extend", "done", "start")
    more = {"extend": " 1h for=more"}
    return [("dave", f"/gpu {line} {one}{more.get(line, '')}") for line in lines] + [("alice", f"/gpu start {one}")]
