"""Show the commands of a session's queue: how each ended, and what it cost of the session's bill."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from bot.rules.billing.command_costs import CommandTime, command_costs
from bot.rules.jobs.stored import job_of
from bot.services.billing.metering import billed_until, cost_now, rule_of, running_usd
from bot.services.runtime.context import Context
from ledger.models import CommandResult, Instance
from ledger.queries.jobs.command_results import results_of
from ledger.queries.lookups import instances_of_session
from ledger.queries.session_costs import booked_of
from ledger.queries.views import session_view


@dataclass(frozen=True, slots=True)
class QueueCommand:
    """One command of a queue; `result` is None until it ended. `cost_usd` is its share of its machine's bill."""

    number: int
    command: str
    result: CommandResult | None = None
    cost_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class QueueResults:
    """All commands of a queue. Their costs and `idle_usd` add up to `total_usd`, the session's cost so far."""

    commands: tuple[QueueCommand, ...]
    total_usd: Decimal
    idle_usd: Decimal


async def queue_results(ctx: Context, session_id: str, now: datetime) -> QueueResults:
    """Return the commands of one session's queue. LookupError when there is no such session."""
    async with ctx.db.read() as tx:
        view = await session_view(tx, session_id)
        found = await results_of(tx, session_id)
        rows = await instances_of_session(tx, session_id)
        booked = (await booked_of(tx, [session_id])).get(session_id, {})
    total_usd = cost_now(ctx, view, now)
    bills = {key: one.usd for key, one in booked.items()}
    open_usd = total_usd - view.accrued_usd
    for other, its_booked in view.others if view.session.ended_at is None else ():
        usd = running_usd(other, its_booked, now, rule_of(ctx, other))
        bills[other.id] = bills.get(other.id, Decimal(0)) + usd
        open_usd -= usd
    if view.instance is not None:
        bills[view.instance.id] = bills.get(view.instance.id, Decimal(0)) + open_usd
    ran: defaultdict[str, list[CommandTime]] = defaultdict(list)
    for one in found:
        ran[one.instance_id].append(CommandTime(one.number, one.started_at, one.ended_at))
    costs: dict[int, Decimal] = {}
    for row in rows:
        bill = bills.get(row.id, Decimal(0))
        shared = command_costs(bill, _billed(row, now), view.session.gpu_count, ran[row.id])
        costs |= shared.by_number
    by_number = {one.number: one for one in found}
    commands = tuple(
        QueueCommand(number, command, by_number.get(number), costs.get(number, Decimal(0)))
        for number, command in enumerate(job_of(view.request.job).queue, 1)
    )
    return QueueResults(commands, total_usd, total_usd - sum(costs.values(), Decimal(0)))


def _billed(row: Instance, now: datetime) -> tuple[datetime, datetime] | None:
    """Return from when and until when an instance was billed, as far as that is known now; None where it was not."""
    until = min(filter(None, (row.ended_at, row.billing_until, billed_until(row, now))))
    return (row.billing_from, until) if row.billing_from is not None and row.billing_from < until else None
