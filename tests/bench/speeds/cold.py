"""Forty first requests of a cold market, through Slack, REST and in process: how long each waits, and for what.

Each request meets clouds that nobody asked for two minutes, and a process that has read nothing yet, on a clock that
only waits move: what is timed is the pace of the clouds. Each adapter keeps to its documented pace, each sandbox
counts the calls, and each recommendation is compared with the whole warm market's.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from bot.rules.grammar.parser import parse
from bot.rules.grammar.readers import ParsedCommand
from bot.rules.jobs import stored
from bot.rules.jobs.job import JobRequest
from bot.rules.market.ranking import rank
from bot.services.requests import looking, submit
from bot.services.runtime.commands import Provision
from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from ledger.kernel.states import RequestState
from ledger.models import Request
from ledger.queries.views import RequestView
from migrations.run import upgrade
from providers.completeness import Completeness
from providers.rate_limits import LocalPacer
from providers.sandbox.clock import SandboxTiming
from tests.api.door import opened
from tests.slack.conftest import Stage, staged
from tests.support.clock import SteppedClock
from tests.support.databases import sqlite_url
from tests.support.serving import adapters, catalog_of
from tests.support.world import ALICE, CHANNEL, World

#: How long people wait beyond the first cloud's answer, and how long a cloud is left alone before a question.
PATIENCE_S: Final = 3.0
IDLE_S: Final = 120.0
COPIED_S: Final = 3_600.0
DOORS: Final = ("Slack", "REST", "in process")
RUNS: Final = (
    "model=7B type=lora tokens=20M",
    "model=1B tokens=300M",
    "model=13B type=qlora tokens=10M",
    "model=7B type=qlora tokens=5M",
)
NAMES: Final = ("RTX4090", "H100-SXM", "A100-80GB-SXM", "RTX3090", "L40S", "A6000", "RTX5090", "H200")
#: Vast answers ten searches a minute, which is the pace that a first request meets.
SEARCHES_A_MINUTE: Final = 10


def questions() -> Iterator[tuple[str, str]]:
    """Sixteen described runs, twelve open counts and twelve named GPUs: kind and words."""
    for number in range(16):
        spot = " spot=any" if number == 15 else ""
        yield "described", f"gpus=1-8 {RUNS[number % 4]} disk={(100, 200, 500, 50)[number // 4]}{spot}"
    for number in range(12):
        gpu = " memory=16GB+" if number < 6 else f" gpu={NAMES[number - 6]}"
        spot = " spot=any" if number == 5 else ""
        yield "open count", f"gpus=1-{(8, 4, 2)[number % 3]}{gpu} 3h disk={(50, 120)[number % 2]}{spot}"
    for number in range(12):
        yield "named", f"{(1, 8)[number // 8]}x{NAMES[number % 8]} 2h"


@dataclass
class Report:
    """What forty requests showed."""

    waits_s: dict[str, list[float]] = field(default_factory=dict)
    doors: Counter[str] = field(default_factory=Counter)
    complete: int = 0
    equal: int = 0
    #: Cards that called an offer the cheapest before the rest was read.
    early: int = 0
    searches_max: int = 0

    @property
    def every_s(self) -> list[float]:
        """All waits."""
        return [wait_s for waits in self.waits_s.values() for wait_s in waits]


async def cold() -> list[tuple[str, str, str]]:
    """The lines of the report: name, value, aim."""
    report, clock = Report(), SteppedClock()
    async with service(clock) as (stage, key):
        for number, ((kind, words), name) in enumerate(zip(questions(), cycle(DOORS), strict=False)):
            await one_request(stage, key, report, kind, words, f"{name} {number}")
        copies = await copied(stage.w)
    total = len(report.every_s)
    quick = sum(wait_s <= PATIENCE_S for wait_s in report.every_s)
    doors = ", ".join(f"{name} {count}" for name, count in report.doors.items())
    return [
        (f"cold first requests, final within {PATIENCE_S:.0f} s", f"{quick} of {total}", "aim >= 36 of 40"),
        ("asked through", doors, ""),
        (
            "the slowest of them, at the clouds' pace",
            f"{max(report.every_s):.0f} s",
            "spot and on-demand of everything",
        ),
        ("complete answers", f"{report.complete} of {total}", "all"),
        ("the same recommendation as the whole warm market", f"{report.equal} of {total}", "all"),
        ("cards that say cheapest of a part", f"{report.early}", "none"),
        ("most searches of Vast in a minute", f"{report.searches_max}", f"pace {SEARCHES_A_MINUTE}"),
        *(
            (f"{kind}: slowest", f"{max(waits):.1f} s", f"{len(waits)} requests")
            for kind, waits in report.waits_s.items()
        ),
        *((f"copy of {cloud}: calls an hour", f"{count}", "counted by its sandbox") for cloud, count in copies.items()),
    ]


@asynccontextmanager
async def service(clock: SteppedClock) -> AsyncIterator[tuple[Stage, str]]:
    """A service with a door in Slack whose clouds count calls, and a key for REST."""
    with tempfile.TemporaryDirectory() as folder:
        db = Database(sqlite_url(Path(folder) / "ledger.db"))
        await upgrade(db)
        try:
            sandbox = SandboxTiming.quick(enforce_rate_limits=True)
            async with staged(db, clock, sandbox=sandbox) as stage, opened(stage.w) as door:
                yield stage, await door.key(scopes=("requests:read", "requests:write"))
        finally:
            await db.close()


async def one_request(stage: Stage, key: str, report: Report, kind: str, words: str, label: str) -> None:
    """Ask once through a door of a process that just started, wait for the final card, and compare it."""
    w, clock = stage.w, stage.w.clock
    clock.advance(IDLE_S)
    await restarted(stage)
    calls, began_s = len(w.engine.calls), clock.monotonic()
    name = label.rpartition(" ")[0]
    request_id = await asked(stage, key, name, words, label)
    while (view := await w.view(request_id)).request.state is RequestState.QUOTING:
        report.early += "heapest" in str(view.request.looking or "")
        clock.advance(looking.LOOK_S)
        await stage.settle()
    report.waits_s.setdefault(kind, []).append(clock.monotonic() - began_s)
    report.doors[name] += 1
    times_s = [call.at.timestamp() for call in list(w.engine.calls)[calls:] if is_search(call)]
    report.searches_max = max(report.searches_max, most_in_a_minute(times_s))
    report.complete += is_complete(view)
    clock.advance(IDLE_S)
    report.equal += recommended(view) == await best_of_the_warm_market(w, view.request)
    withdrawn = await w.cancel(request_id, Actor.from_ref(view.request.requester))
    assert withdrawn.ok, withdrawn
    await stage.settle()


async def restarted(stage: Stage) -> None:
    """Go on as a process that has read nothing, with adapters that keep to the documented paces."""
    w = stage.w
    await w.ctx.catalog.close()
    w.use(adapters(w.environments, w.ctx.clock, LocalPacer(w.clock), volumes=False))
    await stage.restart(w.ctx)


async def asked(stage: Stage, key: str, name: str, words: str, label: str) -> str:
    """Request the words through a door, and return the request's id."""
    before = {row.id for row in (await stage.w.books()).requests}
    if name == "Slack":
        outcome = await stage.command("alice", f'/gpu provision {words} for="{label}"')
    elif name == "REST":
        async with opened(stage.w) as now:
            body, headers = {"words": words, "reason": label}, {"Idempotency-Key": label}
            answer = await now.call("POST", "/sessions", key, json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        await stage.settle()
    else:
        reply = await submit.submit(stage.w.ctx, Provision(label, ALICE, CHANNEL, job_of(words)))
        assert reply.ok, reply
        await stage.settle()
    added = {row.id for row in (await stage.w.books()).requests} - before
    assert added, (words, outcome)
    (request_id,) = added
    return request_id


def job_of(words: str) -> JobRequest:
    """The job that the words describe."""
    command = parse(f"provision {words}")
    assert isinstance(command, ParsedCommand), command
    assert command.job is not None
    return command.job


def is_complete(view: RequestView) -> bool:
    """Whether every cloud that answered gave all that it has."""
    assert view.quote is not None, view.request.state
    answers = [one for one in view.quote.clouds if one["ok"]]
    return bool(answers) and all(Completeness.from_json(one["completeness"]).is_complete for one in answers)


def recommended(view: RequestView) -> str:
    """The offer on the card."""
    return f"{view.options[0].cloud}:{view.options[0].offer_key}" if view.options else "nothing"


async def best_of_the_warm_market(w: World, request: Request) -> str:
    """What a process recommends that waits for the whole market."""
    providers = adapters(w.environments, w.ctx.clock, LocalPacer(w.clock), volumes=False)
    catalog = catalog_of(providers, w.ctx.clock, w.ctx.timing, w.ctx.db)
    catalog.patience_s = None
    try:
        job = stored.job_of(request.job)
        market = await catalog.market(job, job.disk_gb, policy=w.ctx.policy, to_buy=True)
        own, able, proof = await catalog.own_history(), catalog.capabilities, market.completeness.proof
        ranked = rank(market.offers, job, w.ctx.policy, able, proof=proof, own=own, to_run=True, whole=True, top=1)
        return ranked.options[0].offer.id if ranked.options else "nothing"
    finally:
        await catalog.close()


def is_search(call: Any) -> bool:
    """Whether a call at a sandbox is one of Vast's searches, which have the narrowest pace."""
    return bool(call.cloud == "vast" and "bundles" in call.path)


def most_in_a_minute(times_s: list[float]) -> int:
    """The most of these moments within any minute."""
    return max((sum(at <= other < at + 60 for other in times_s) for at in times_s), default=0)


async def copied(w: World) -> dict[str, int]:
    """The calls that an hour of copies makes at each cloud."""
    w.clock.advance(IDLE_S)
    providers = adapters(w.environments, w.ctx.clock, LocalPacer(w.clock), volumes=False)
    catalog = catalog_of(providers, w.ctx.clock, w.ctx.timing, w.ctx.db)
    until_s, counts = w.clock.monotonic() + COPIED_S, dict.fromkeys(w.clouds, 0)
    while w.clock.monotonic() < until_s:
        for cloud in catalog.copied_clouds:
            before = len(w.engine.calls)
            await catalog.copy_next(cloud, w.ctx.policy)
            counts[cloud] += len(w.engine.calls) - before
        w.clock.advance(1)
    await catalog.close()
    return counts
