"""A hundred people click at once, in several processes: one outcome per request, at most one intent to buy."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bot.services.audit import invariants
from ledger.engine.db import Database
from ledger.kernel.states import OPEN_INSTANCE, RequestState
from ledger.models import Token
from ledger.queries.audit import Books, read_books
from tests.support import rows
from tests.support.clock import SteppedClock

#: The second is for `--soak`.
ROUNDS, ALL_ROUNDS = 10, 50
CLICKS = 100
PROCESSES = {"sqlite": 2, "postgresql": 3}
FINAL = {
    "approved": RequestState.APPROVED,
    "rejected": RequestState.REJECTED,
    "cancelled": RequestState.CANCELLED,
}
#: Who clicks what, and how many of a hundred times.
MIX = [("UBEN", "approve", 30), ("UCAROL", "approve", 30), ("UBEN", "reject", 10), ("UCAROL", "reject", 10)]
CANCELS = 20
#: Whose click comes alone, before all others, in which of five rounds: so every outcome has its rounds.
HEAD_STARTS = {0: "cancel", 1: "reject", 2: "approve"}
Round = list[list[str]]


@asynccontextmanager
async def clickers(url: str, count: int) -> AsyncIterator[list[Process]]:
    """So many processes, waiting for their first round."""
    command = [sys.executable, "-m", "tests.scenarios.faults.clicker", url]
    started = [await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE) for _ in range(count)]
    try:
        for process in started:
            assert process.stdout is not None
            assert (await process.stdout.readline()).strip() == b"ready"
        yield started
    finally:
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
        await asyncio.gather(*(process.wait() for process in started))


async def ask(process: Process, clicks: Round) -> list[str]:
    """One process plays one round."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(clicks).encode() + b"\n")
    await process.stdin.drain()
    codes: list[str] = json.loads(await process.stdout.readline())
    return codes


async def prepare(db: Database, number: int) -> Round:
    """A request that waits for one approver or, every other time, for two, and a hundred clicks on it."""
    async with db.write() as tx:
        request = await rows.request(tx, required_approvals=1 + number % 2)
        quote = await rows.quote(tx, request)
        options = [await rows.option(tx, quote, rank) for rank in (1, 2)]
        tokens = {"reject": secrets.token_urlsafe(8), "cancel": ""}
        for option in (None, *options):
            action = "approve" if option else "reject"
            token = tokens.setdefault(f"approve {option.rank}", secrets.token_urlsafe(8)) if option else tokens[action]
            of = option.id if option else None
            tx.add(Token(token=token, request_id=request.id, quote_version=1, action=action, option_id=of))
    clicks = [["", request.id, "UADA", "cancel"] for _ in range(CANCELS)]
    for user, action, count in MIX:
        names = ["approve 1", "approve 2"] if action == "approve" else ["reject"]
        clicks += [[tokens[names[i % len(names)]], request.id, user, action] for i in range(count)]
    assert len(clicks) == CLICKS
    random.Random(number).shuffle(clicks)
    first = HEAD_STARTS.get(number % 5)
    clicks.sort(key=lambda one: one[3] != first)
    return clicks


def judge(books: Books, request_id: str, codes: Counter[str]) -> None:
    """One decision stands, and what it says is what the ledger holds."""
    request = next(row for row in books.requests if row.id == request_id)
    won = [code for code in codes if code in FINAL]
    assert len(won) == 1, codes
    assert codes[won[0]] == 1, codes
    assert request.state is FINAL[won[0]], (request.state, codes)
    assert codes["first_of_two"] <= 1, codes
    approved = won == ["approved"]
    instances = [row for row in books.instances if row.request_id == request_id and row.state in OPEN_INSTANCE]
    grants = [row for row in books.grants if row.request_id == request_id]
    assert (len(instances), len(grants)) == (approved, approved)
    yes = {row.approver for row in books.approvals if row.request_id == request_id and row.decision == "approve"}
    assert not approved or len(yes) == request.required_approvals


@pytest.mark.both_databases
@pytest.mark.slow
async def test_a_hundred_clicks_at_once_have_one_outcome(db: Database, request: pytest.FixtureRequest) -> None:
    count = ALL_ROUNDS if request.config.getoption("--soak") else ROUNDS
    rounds = [await prepare(db, number) for number in range(count)]
    results: list[tuple[str, Counter[str]]] = []
    async with clickers(db.url.render_as_string(hide_password=False), PROCESSES[db.dialect]) as processes:
        for number, clicks in enumerate(rounds):
            lead = 1 if number % 5 in HEAD_STARTS else 0
            first = await ask(processes[0], clicks[:lead])
            rest = clicks[lead:]
            shares = [rest[n :: len(processes)] for n in range(len(processes))]
            codes = await asyncio.gather(*(ask(one, share) for one, share in zip(processes, shares, strict=True)))
            results.append((clicks[0][1], Counter(code for share in (first, *codes) for code in share)))
    books = await read_books(db)
    for request_id, counted in results:
        assert counted.total() == CLICKS
        judge(books, request_id, counted)
    assert len({request.state for request in books.requests}) == len(FINAL)
    assert await invariants.check(db, SteppedClock()) == []
