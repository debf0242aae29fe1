"""Every reason that ends a session, as its people live it: warned in time, ended in time, booked, and in the digest.

With Slack well, with Slack down throughout, and with an owner whom no message reaches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import select

from bot.practice.reader import all_text
from bot.services.sessions import overspend
from ledger.engine.db import Database
from ledger.kernel.end_reason import END_LABELS
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from ledger.models import Option
from providers.sandbox.vast.account import Contract
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.clock import SteppedClock
from tests.support.scenarios import FALLBACK, OWNER, Scene, Slack, every_way, reached, scene, ways

LINE = '/gpu provision 1x4090 2h clouds=vast for="fine-tune"'
SPOT = f"{LINE} spot=yes"
UNHEALTHY = '/gpu provision 1x quadrortx6000 2h clouds=lambda for="fine-tune"'
ENDING = ("Ask for more time…", "It is done", "End it now")
UNATTENDED = ("Keep 1 h", "It is done", "End it now")
BEFORE_S = (3600, 1800, 600, 120)
SECOND = timedelta(seconds=1)
#: This long after a warning it is looked whether it was shown, and the fallback contact is told if not.
ANSWER = timedelta(seconds=30)
GRACE = timedelta(minutes=10)


def contract(s: Scene) -> Contract:
    """What Vast.ai really rents to us."""
    vast = s.stage.w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    return next(iter(vast.account.instances.values()))


async def told_in_the_end(s: Scene, slack: Slack, code: str, why: str) -> None:
    """It is over: booked to the cent, in everybody's history however Slack was, once, and in the morning's digest."""
    await s.is_booked()
    if slack is Slack.DOWN:
        assert s.heard == {OWNER: [], FALLBACK: []}
        await s.comes_back()
        assert s.heard[OWNER], "what happened meanwhile is told when Slack is back"
    assert s.stage.ws.duplicates() == []
    morning = await s.digest()
    assert f"{END_LABELS.get(code, code.replace('_', ' '))} ×1" in morning
    assert why in (await s.session()).end_reason


# ── announced, then ended when its time comes ────────────────────────────────────────────────────


@dataclass(frozen=True)
class Reason:
    """`cause` brings it about and says when the session must end; `warned_s` before, `why` is told with `buttons`."""

    cause: Callable[[Scene], Awaitable[datetime]]
    code: str
    why: str
    warned_s: tuple[int, ...] = BEFORE_S
    buttons: tuple[str, ...] = ENDING
    line: str = LINE
    #: Its agent's reports matter, so time does not jump over them.
    agents: bool = False
    approval: tuple[tuple[str, Any], ...] = ()
    #: How the words before the end say it, where that is not how the end itself is told.
    ahead: str = ""

    async def reach(self, s: Scene, at: datetime) -> None:
        await (s.watched(at) if self.agents else s.to(at))


async def its_time(s: Scene) -> datetime:
    """Nothing happens; its approved end comes."""
    end = (await s.session()).deadline
    assert end is not None
    return end


def idle(minutes: int) -> Callable[[Scene], Awaitable[datetime]]:
    async def rests(s: Scene) -> datetime:
        s.agent.utilisation = [1.0]
        await s.watched(s.agent.next_at)
        return s.now + timedelta(minutes=minutes + 10)

    return rests


async def job_over(s: Scene) -> datetime:
    s.agent.job = "done"
    return s.agent.next_at + timedelta(minutes=2)


def idling(workload: str, minutes: int, limit: str) -> Reason:
    """Nothing is done for as long as this kind of work may rest."""
    line = f"{LINE} workload={workload}"
    return Reason(idle(minutes), "idle", f"The limit for {workload} is {limit}", (600,), UNATTENDED, line, True)


REASONS = {
    "reservation-over": Reason(
        its_time, "reservation_over", "The approved 2 hours have ended.", ahead="The approved 2 hours end then."
    ),
    "hours-cap": Reason(its_time, "hours_cap", "More than 12 hours needs an override", line=LINE.replace("2h", "12h")),
    "budget-cap": Reason(
        its_time,
        "budget_cap",
        "The approved amount of $0.30 is used up.",
        (600, 120),
        approval=(("cap_usd", Decimal("0.30")),),
        ahead="The approved amount of $0.30 will be used up then.",
    ),
    "idle-training": idling("training", 30, "30 minutes"),
    "idle-serving": idling("serving", 60, "1 hour"),
    "idle-batch": idling("batch", 15, "15 minutes"),
    "job-exited": Reason(job_over, "completed", "Its job is done.", (120,), UNATTENDED, agents=True),
}


@ways(REASONS, away=("reservation-over",), like=("hours-cap", "idle-serving", "idle-batch"))
async def test_an_announced_end(db: Database, clock: SteppedClock, name: str, slack: Slack) -> None:
    it = REASONS[name]
    async with scene(db, clock, slack, it.line, dict(it.approval)) as s:
        end_at = await it.cause(s)
        for before_s in it.warned_s:
            at = end_at - timedelta(seconds=before_s)
            if before_s == it.warned_s[0]:
                await it.reach(s, at - SECOND)
            known = len(s.heard[reached(slack)])
            await it.reach(s, at)
            if slack is Slack.AWAY:
                await it.reach(s, at + ANSWER)
            new = s.heard[reached(slack)][known:]
            if slack is Slack.DOWN:
                assert new == []
                continue
            assert new, f"nobody was told {before_s} s before"
            assert (it.ahead or it.why) in new[0].text
            assert new[0].buttons == it.buttons
        await it.reach(s, end_at - SECOND)
        assert ((await s.session()).state, s.rented().alive) == (SessionState.RUNNING, True)
        await it.reach(s, end_at)
        row = await s.session()
        assert (row.end_code, s.rented().ended_at) == (it.code, end_at)
        assert it.why in row.end_reason
        await s.confirmed()
        assert (await s.session()).state is SessionState.TERMINATED
        await told_in_the_end(s, slack, it.code, it.why)
        if slack is not Slack.AWAY:
            assert any("* ended." in one.text for one in s.heard[OWNER])


# ── it fails while somebody counts on it ─────────────────────────────────────────────────────────


def disturbed(how: str) -> Callable[[Scene], None]:
    def cause(s: Scene) -> None:
        rented = s.rented()
        s.stage.w.clouds[rented.cloud].disturb(rented.ref, how)

    return cause


def other_gpus(s: Scene) -> None:
    contract(s).gpu = "RTX3090"


BROKEN = {
    "offline": (disturbed("offline"), "lost contact with the machine", LINE),
    "unhealthy": (disturbed("unhealthy"), "lost contact with the machine", UNHEALTHY),
    "wrong-gpus": (other_gpus, "It has 1x RTX3090 instead of the GPUs that were approved.", LINE),
    "spot-interruption": (disturbed("outbid_a"), "took the spot instance back", SPOT),
}


@ways(BROKEN, away=("offline",), like=("unhealthy",))
async def test_a_machine_that_fails_is_told_at_once_and_waits_until_its_approved_end(
    db: Database, clock: SteppedClock, name: str, slack: Slack
) -> None:
    cause, why, line = BROKEN[name]
    async with scene(db, clock, slack, line) as s:
        await s.to(s.now + timedelta(minutes=30))
        cause(s)
        await s.to(s.now + SECOND)
        if slack is not Slack.DOWN:
            (message,) = s.heard[reached(slack)]
            assert why in message.text
            assert "The machine stays until" in message.text
            assert message.buttons == ("Wait", "Give up")
        await its_approved_end(s, slack)


@ways([name for name in BROKEN if name != "offline"], away=("wrong-gpus",), like=("unhealthy",))
async def test_a_machine_that_fails_ends_after_ten_minutes_where_waiting_may_cost_nothing(
    db: Database, clock: SteppedClock, name: str, slack: Slack
) -> None:
    cause, why, line = BROKEN[name]
    async with scene(db, clock, slack, line) as s:
        s.stage.w.tune(grace_usd=Decimal(0))
        await s.to(s.now + timedelta(minutes=30))
        cause(s)
        await s.to(s.now + SECOND)
        since = s.now
        if slack is not Slack.DOWN:
            (message,) = s.heard[reached(slack)]
            assert why in message.text
            assert "If it is not back by" in message.text
        await s.to(since + GRACE - SECOND)
        assert s.rented().alive
        await s.to(since + GRACE)
        assert s.rented().ended_at == s.now
        await s.confirmed()
        (request,) = (await s.stage.w.books()).requests
        assert (request.state, request.quote_version) == (RequestState.PENDING, 2)
        assert why in request.outcome
        await s.to(s.now + timedelta(hours=2))  # Nobody approves another one.
        await told_in_the_end(s, slack, "expired", why)


@every_way
async def test_a_silent_agent_ends_nothing_before_the_approved_end(
    db: Database, clock: SteppedClock, slack: Slack
) -> None:
    async with scene(db, clock, slack, LINE) as s:
        await s.watched(s.now + timedelta(seconds=200))
        s.agent.silent = True
        await s.watched(s.now + timedelta(minutes=30))
        assert s.heard[OWNER] == [], "its SSH port answers, so nothing is wrong with it"
        await its_approved_end(s, slack)


async def its_approved_end(s: Scene, slack: Slack) -> None:
    """Nothing ends it before its approved end."""
    end = await its_time(s)
    for before_s in BEFORE_S:
        await s.to(end - timedelta(seconds=before_s))
    await s.to(end - SECOND)
    assert ((await s.session()).state, s.rented().alive) == (SessionState.RUNNING, True)
    await s.to(end)
    assert ((await s.session()).end_code, s.rented().ended_at) == ("reservation_over", end)
    await s.confirmed()
    await told_in_the_end(s, slack, "reservation_over", "The approved 2 hours have ended.")


@every_way
async def test_what_the_cloud_lost_is_told_when_it_is_proved(db: Database, clock: SteppedClock, slack: Slack) -> None:
    async with scene(db, clock, slack, LINE) as s:
        await s.to(s.now + timedelta(minutes=50))
        disturbed("vanish")(s)
        await s.to(s.now + SECOND)
        assert (await s.row()).state is InstanceState.LIVE
        assert s.heard[OWNER] == []
        await s.confirmed()
        assert (await s.row()).outcome_code == "lost"
        if slack is not Slack.DOWN:
            assert "GPU Shopper didn't terminate it" in s.heard[reached(slack)][0].text
        await s.to(s.now + timedelta(hours=2))
        await told_in_the_end(s, slack, "expired", "GPU Shopper didn't terminate it")


# ── somebody's word ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("slack", "who", "verb", "code", "why"),
    [
        (Slack.WELL, "alice", "done {} success destroy", "completed", "The work was reported as done."),
        (Slack.WELL, "bob", "terminate {} now", "asked", "Ended on request."),
        (Slack.AWAY, "bob", "terminate {} now", "asked", "Ended on request."),
    ],
    ids=["done", "operator", "operator-owner-away"],
)
async def test_an_end_by_somebodys_word_is_at_once(
    db: Database, clock: SteppedClock, slack: Slack, who: str, verb: str, code: str, why: str
) -> None:
    async with scene(db, clock, slack, LINE) as s:
        await s.to(s.now + timedelta(minutes=50))
        row = await s.session()
        await s.stage.command(who, f"/gpu {verb.format(row.id)}")
        await s.work()  # Somebody else's word waits until its owner was told, or somebody in their place.
        assert s.rented().ended_at == s.now
        if who == "bob":
            told = s.heard[reached(slack)][0].text
            assert why in told
            assert "<@U0BOB>" in told
        await s.confirmed()
        assert (await s.session()).end_code == code
        counted = "ended on request" if code == "asked" else code
        await told_in_the_end(s, slack, counted, why)


# ── it will cost more ────────────────────────────────────────────────────────────────────────────


@every_way
async def test_a_cost_that_nobody_confirms_pauses_it_and_ends_it_at_its_approved_end(
    db: Database, clock: SteppedClock, slack: Slack
) -> None:
    async with scene(db, clock, slack, LINE) as s:
        await s.to(s.now + timedelta(minutes=20))
        async with s.stage.ctx.db.write() as tx:  # As if its work took longer than anybody thought.
            for option in await tx.scalars(select(Option)):
                option.expected_usd /= 2
        await s.to(s.now + timedelta(seconds=overspend.LOOK_S))
        asked_at = s.now
        if slack is not Slack.DOWN:
            assert "will cost about" in s.heard[reached(slack)][-1].text
            (asked,) = [m for m in s.stage.ws.channel_messages() if "approve:1" in str(m.blocks)]
            assert "will cost about" in all_text(asked)
        await s.to(asked_at + timedelta(minutes=15) - SECOND)
        assert contract(s).meter.rate_usd_h("gpu", s.now) > 0
        await s.to(asked_at + timedelta(minutes=15))
        await s.to(s.now + timedelta(seconds=20))
        assert ((await s.session()).state, s.rented().alive) == (SessionState.STOPPED, True)
        assert contract(s).meter.rate_usd_h("gpu", s.now) == 0
        if slack is not Slack.DOWN:
            assert any("Nobody approved its higher cost" in one.text for one in s.heard[reached(slack)])
        end_at = await its_time(s)
        await s.to(end_at - timedelta(seconds=120))
        await s.to(end_at - SECOND)
        assert s.rented().alive
        await s.to(end_at)
        assert ((await s.session()).end_code, s.rented().ended_at) == ("drift_unconfirmed", end_at)
        await s.confirmed()
        await told_in_the_end(s, slack, "drift_unconfirmed", "Nobody approved its higher cost.")


@every_way
async def test_a_host_price_change_is_said_and_asked_about_and_ends_nothing(
    db: Database, clock: SteppedClock, slack: Slack
) -> None:
    async with scene(db, clock, slack, LINE) as s:
        await s.to(s.now + timedelta(minutes=20))
        contract(s).reprice(s.now, Decimal("1.2"))
        await s.to(s.now + timedelta(seconds=90))
        assert ((await s.session()).state, s.rented().alive) == (SessionState.RUNNING, True)
        if slack is not Slack.DOWN:
            assert "above the approved" in s.heard[reached(slack)][-1].text
            (asked,) = [m for m in s.stage.ws.channel_messages() if "approve:1" in str(m.blocks)]
            assert "The new rate needs an approval." in all_text(asked)
        await s.to(s.now + timedelta(minutes=30))
        assert s.rented().alive


# ── it should not be there ───────────────────────────────────────────────────────────────────────


@every_way
async def test_3453_an_orphan_is_told_to_its_people_and_ended_at_its_second_sighting(
    db: Database, clock: SteppedClock, slack: Slack
) -> None:
    """A create that was given up lands after all."""
    async with scene(db, clock, slack, LINE) as s:
        (first,) = s.stage.w.instances()
        name = str(first.name)
        vast = s.stage.w.clouds["vast"]
        assert isinstance(vast, VastSandbox)
        vast.account.rent(next(vast.account.market.slices()), {"label": name, "image": "x", "disk": 50})
        await s.to(s.now + timedelta(seconds=20))
        seen_at = s.now
        (stray,) = (await s.stage.w.books()).orphans
        assert stray.state is OrphanState.SEEN
        if slack is not Slack.DOWN:
            told = s.heard[reached(slack)][-1].text
            assert "A second instance" in told
            assert "will be terminated within minutes" in told
            (request,) = s.stage.ws.channel_messages()
            assert any("A second instance" in all_text(one) for one in s.stage.ws.thread(request))
        await s.to(seen_at + ANSWER - SECOND)
        assert len(s.stage.w.alive()) == 2
        await s.to(seen_at + ANSWER)
        twin = s.stage.w.instances()[1]
        assert (twin.ended_at, s.rented().alive) == (s.now, True)
        await s.confirmed()
        (stray,) = (await s.stage.w.books()).orphans
        assert stray.state is OrphanState.GONE
        await s.to(await its_time(s))
        await s.to(s.now + timedelta(seconds=5))
        await s.confirmed()
        await s.is_booked()
        if slack is Slack.DOWN:
            await s.comes_back()
            assert any("A second instance" in one.text for one in s.heard[OWNER])
        assert "*Orphans found* (1)" in await s.digest()
