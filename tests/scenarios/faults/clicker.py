"""One of several processes that click at the same moment: `python -m tests.scenarios.faults.clicker DATABASE_URL`.

Each line on standard input is one round, a JSON list of `[token, request id, user, action]`. All clicks of a round
start together; the answer is one line with the list of their codes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta

from bot.outbound.ssh_login import Ran, SshLogin
from bot.rules.approvals.decision import DeciderFacts
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.services.approvals import decisions
from bot.services.market.catalog import Catalog
from bot.services.runtime.commands import Cancel, Decide
from bot.services.runtime.context import Context
from bot.services.runtime.ports import Reached
from ledger.core.inbox import InboxWriter
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.login_problem import LoginProblem
from providers.registry import REGISTRY
from tests.support.clock import SteppedClock
from tests.support.rows import LABELS


class NoReach:
    """Nothing is reached from here."""

    async def probe(self, host: str, port: int) -> Reached:
        return Reached(False, "not asked")

    async def host_key(self, host: str, port: int, kind: str | None = None) -> str | None:
        return None

    async def run(self, login: SshLogin, command: str, *, stdin: str = "", timeout_s: float) -> Ran:
        return Ran(problem=LoginProblem.UNREACHABLE)

    async def follow(self, login: SshLogin, command: str, *, timeout_s: float) -> LoginProblem:
        return LoginProblem.UNREACHABLE


def context(db: Database) -> Context:
    """The services on `db`, with an adapter that is never called."""
    clock = SteppedClock()
    clouds = {"vast": REGISTRY["vast"].connect({"VAST_API_KEY": "never-used"}, clock)}
    inbox = InboxWriter(db, timedelta(seconds=60))
    catalog = Catalog(clouds, clock, 1.0)
    return Context(db, clock, Policy(approvers=("UBEN", "UCAROL")), Timing(), clouds, catalog, LABELS, NoReach(), inbox)


async def click(ctx: Context, token: str, request_id: str, user: str, action: str) -> str:
    """One person does one thing; the code of the answer."""
    facts = DeciderFacts(Actor(ActorKind.SLACK, user, "T1"))
    if action == "cancel":
        return (await decisions.cancel(ctx, Cancel(request_id, facts))).code
    return (await decisions.decide(ctx, Decide(token, facts, "no"))).code


async def main(url: str) -> None:
    """Play rounds until the input ends."""
    db = Database(url)
    ctx = context(db)
    async with db.read():
        print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        codes = await asyncio.gather(*(click(ctx, *one) for one in json.loads(line)))
        print(json.dumps(codes), flush=True)
    await db.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
