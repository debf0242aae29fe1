"""Every kind of ineligible person tries everything that needs an eligible one, at every interface: nothing is accepted.

Somebody has what it takes: an approver's name, keys, a program, an AI agent, a session and open dialogs. Then Slack
says something else of them. The ledger judges: nothing may be stored. A node's token names a machine and no person,
so nodes are no part of this. The same attempts of a member are accepted, so that a refusal means something.

Of 240 attempts and those of open dialogs, policies and delegates, `make test` makes a part. All of them:
`.venv/bin/python -m pytest --all tests/services/people/test_ineligible_people.py`
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from bot.practice.model import TEAM_ID
from bot.practice.reader import buttons
from bot.rules.policy.policy import Policy
from ledger.engine.db import Database
from ledger.kernel.request_kind import RequestKind
from tests.services.people.everywhere import Attempt, Everywhere, everywhere, server
from tests.slack.conftest import Stage, staged
from tests.support.clock import SteppedClock

BY_POLICY: dict[str, Any] = {
    "auto_approve_below_usd": Decimal(50),
    "auto_approve_daily_usd": Decimal(500),
    "auto_approve_signed_by": "Finance",
    "auto_approve_until": date(2027, 1, 1),
}
POLICY = Policy(
    approvers=("U0BOB", "U0CAROL", "operator:bob"),
    same_person=(("U0BOB", "operator:bob"), ("U0DAVE", "operator:dave")),
    break_glass=("U0BOB", "operator:bob"),
    max_open_requests_per_user=99,
)
#: What Slack says of somebody who may not request, approve or hold a key.
INELIGIBLE: Mapping[str, Mapping[str, Any]] = {
    "deleted": {"deleted": True},
    "bot": {"is_bot": True},
    "other_team": {"team_id": "T0OTHER"},
    "guest": {"is_guest": True},
}
#: Slack does not know them at all; and a member whom the policy names nowhere, who may request but nothing more.
UNKNOWN, OUTSIDER = "unknown", "outsider"
INTERFACES = frozenset(
    ["slack command", "slack button", "rest", "rest as admin", "program", "agent", "command line", "mcp"]
)
KINDS = (*INELIGIBLE, UNKNOWN)


def kinds(*quick: str) -> list[Any]:
    """Every kind, of which `make test` runs these only."""
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in KINDS]


#: How many attempts there are at least for each kind, so that the matrix cannot shrink unseen.
FEWEST, FEWEST_OF_OUTSIDER = 45, 25


def become(stage: Stage, person: Everywhere, kind: str) -> None:
    """From now on Slack says this of somebody."""
    if kind == UNKNOWN:
        stage.fault("users.info", "error", error="user_not_found", times=10**6)
    for name, value in INELIGIBLE.get(kind, {}).items():
        setattr(stage.practice.workspace.users[stage.ws.user_id(person.name)], name, value)
    stage.w.clock.advance(61)  # What Slack said is remembered for a minute.


def be_member_again(stage: Stage, person: Everywhere) -> None:
    """As before `become`."""
    stage.practice.workspace.faults.clear()
    for name, value in {"deleted": False, "is_bot": False, "team_id": TEAM_ID, "is_guest": False}.items():
        setattr(stage.practice.workspace.users[stage.ws.user_id(person.name)], name, value)
    stage.w.clock.advance(61)


async def tried(person: Everywhere, attempts: Iterable[Attempt]) -> dict[str, Any]:
    """What was accepted, and what it stored."""
    found = {}
    for attempt in attempts:
        if stored := await person.accepted(attempt):
            found[f"{attempt.interface}: {attempt.what}"] = stored
    return found


def is_more_time_or_a_key(attempt: Attempt) -> bool:
    """Whether an attempt wants to extend a session, or wants a key for a program."""
    return "extend" in attempt.what or attempt.what == "POST /keys"


@asynccontextmanager
async def with_attempts(
    db: Database, clock: SteppedClock, name: str = "bob"
) -> AsyncIterator[tuple[Stage, Everywhere, list[Attempt]]]:
    """Somebody who has everything, and what they try."""
    async with (
        staged(db, clock, policy=POLICY) as stage,
        everywhere(stage, name) as person,
        server(person) as on_the_server,
    ):
        yield stage, person, [*person.everything(), *on_the_server]


@pytest.mark.parametrize("kind", kinds("guest"))
@pytest.mark.slow
async def test_nothing_is_accepted(sqlite_db: Database, clock: SteppedClock, kind: str) -> None:
    async with with_attempts(sqlite_db, clock) as (stage, person, attempts):
        become(stage, person, kind)
        wanted = [one for one in attempts if not is_more_time_or_a_key(one)]
        assert len(wanted) >= FEWEST
        assert {one.interface for one in wanted} == INTERFACES
        assert await tried(person, wanted) == {}


@pytest.mark.parametrize("kind", kinds("deleted"))
@pytest.mark.slow
async def test_neither_more_time_nor_a_key(sqlite_db: Database, clock: SteppedClock, kind: str) -> None:
    async with with_attempts(sqlite_db, clock) as (stage, person, attempts):
        await stage.as_(person.name).open_home()
        await stage.settle()
        home = await stage.ws.until(lambda: stage.ws.home(person.name))
        await stage.click(person.name, home, next(one for one in actions(home) if one.startswith("extend:")))
        become(stage, person, kind)
        dialog = Attempt("slack dialog", "extend", lambda: submitted(stage, person, {"hours": "1h", "for": "x"}))
        assert await tried(person, [dialog, *filter(is_more_time_or_a_key, attempts)]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("is_delegate", [False, True])
async def test_somebody_the_policy_does_not_name_decides_nothing(
    sqlite_db: Database, clock: SteppedClock, is_delegate: bool
) -> None:
    """A member may request; and whom an approver lets approve does so until their account is deactivated."""
    async with with_attempts(sqlite_db, clock, "dave") as (stage, person, attempts):
        if is_delegate:
            day = (clock.now() + timedelta(days=1)).date()
            await stage.command("carol", f"/gpu delegate @dave until {day}")
            become(stage, person, "deleted")
        wanted = [one for one in attempts if not one.asks]
        assert len(wanted) >= FEWEST_OF_OUTSIDER
        assert await tried(person, wanted) == {}
        if is_delegate:
            be_member_again(stage, person)
            assert await tried(person, wanted[-8:])


@pytest.mark.slow
async def test_a_member_is_accepted_at_every_interface(sqlite_db: Database, clock: SteppedClock) -> None:
    async with with_attempts(sqlite_db, clock) as (_, person, attempts):
        found = await tried(person, attempts)
        assert {name.partition(":")[0] for name in found} == INTERFACES, found


# ── what was begun by a member ───────────────────────────────────────────────────────────────────


def actions(thing: Any) -> list[str]:
    """The buttons of a message or a view."""
    return [str(one["action_id"]) for one in buttons(thing)]


async def submitted(stage: Stage, person: Everywhere, values: dict[str, str]) -> None:
    """Submit the dialog that is open."""
    view = stage.ws.view(person.name)
    assert view is not None
    await stage.as_(person.name).submit(view, values)


async def opened_dialog(stage: Stage, person: Everywhere, verb: str) -> None:
    """Open the form of a request, or a dialog of a button of the request that waits."""
    if verb == "provision":
        await stage.command(person.name, "/gpu provision")
        return
    message = stage.ws.now(person.messages[RequestKind.PROVISION])
    await stage.click(person.name, message, next(one for one in actions(message) if one.partition(":")[0] == verb))


@pytest.mark.parametrize("kind", [*kinds("bot"), pytest.param("member", marks=pytest.mark.slow)])
async def test_a_dialog_that_is_open_already(sqlite_db: Database, clock: SteppedClock, kind: str) -> None:
    async with with_attempts(sqlite_db, clock) as (stage, person, _):
        await stage.replaced(confirm_above_usd=Decimal("0.01"))
        stage.w.ctx = stage.door.ctx
        (option, *_) = (await stage.w.view(person.requests[RequestKind.PROVISION].id)).options
        amount = f"{option.expected_usd:.2f}"
        accepted = []
        for verb, values in (
            ("provision", {"gpu": "RTX4090", "hours": "1h"}),
            ("reject", {"reason": "no"}),
            ("change", {"hours": "1h"}),
            ("approve", {"amount": amount}),
        ):
            await opened_dialog(stage, person, verb)
            become(stage, person, kind)
            if await person.accepted(Attempt("slack dialog", verb, partial(submitted, stage, person, values))):
                accepted.append(verb)
            be_member_again(stage, person)
            if kind == "member":
                break
        assert accepted == (["provision"] if kind == "member" else [])


@pytest.mark.parametrize("kind", kinds("other_team"))
@pytest.mark.slow
async def test_the_policy_approves_nothing_of_theirs(sqlite_db: Database, clock: SteppedClock, kind: str) -> None:
    """They requested as a member, by every interface; the offers came afterwards."""
    async with with_attempts(sqlite_db, clock) as (stage, person, attempts):
        await stage.replaced(**BY_POLICY)
        stage.w.ctx = stage.door.ctx
        asked = [one for one in attempts if one.asks and not is_more_time_or_a_key(one)]
        before = await person.stored()
        for attempt in asked:
            await attempt.act()
            await stage.door.idle()
        become(stage, person, kind)
        await stage.settle()
        after = await person.stored()
        assert len(after["requests"]) >= len(before["requests"]) + 10
        assert [after[table] for table in ("approvals", "grants", "instances")] == [
            before[table] for table in ("approvals", "grants", "instances")
        ]
