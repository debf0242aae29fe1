"""Announce what is wrong with an account once, to operators, and start its machines again once it is usable.

An account without credit, or whose key is refused, stops every machine of the team there. That is one incident, however
many machines it has. A balance that pays for few hours more is announced before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from bot.rules.instances import account_text
from bot.rules.instances.unplanned_end import ACCOUNT_CODES
from bot.services.billing.present_rate import rate_now
from bot.services.grants.starts import start_again
from bot.services.market.preflight import account_code
from bot.services.notifications.paging import OPERATORS, alone, page_in
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import lock_family, notification_of
from ledger.kernel.states import InstanceState, NotificationKind
from ledger.kernel.steps.grace import Cause
from ledger.models import GraceRow, Instance, Session
from ledger.queries.metering import BilledInstance, billed_rows
from ledger.queries.runs.graces import open_grace, open_graces
from providers.contract import Preflight
from providers.errors import InsufficientFunds

#: Seconds between two passes.
LOOK_S: Final = 30.0
_Waiting = tuple[GraceRow, Instance, Session]


async def accounts_due(ctx: Context) -> int:
    """Check the account of each cloud where something runs or waits. Return how many messages and starts were due."""
    if clock_problem(ctx.clock):
        return 0
    async with ctx.db.read() as tx:
        if await recovery_mode.is_on(tx):
            return 0
        rows = await billed_rows(tx)
        graces = await open_graces(tx)
    by_cloud: defaultdict[str, list[BilledInstance]] = defaultdict(list)
    for row in rows:
        provider = ctx.providers.get(row.cloud)
        if provider is not None and provider.account == row.account:
            by_cloud[row.cloud].append(row)
    done = 0
    for cloud, machines in by_cloud.items():
        mine = {row.id for row in machines}
        # Also where a start was refused afterwards: the GPU may be free again.
        waiting = [
            one for one in graces if one[1].id in mine and (one[0].cause is Cause.ACCOUNT or one[0].account_code)
        ]
        done += await alone(ctx, cloud, "the check of its account", _one(ctx, cloud, machines, waiting), 0)
    if done:
        ctx.hints.outbox.set()
        ctx.hints.instances.set()
    return done


async def _one(ctx: Context, cloud: str, machines: Sequence[BilledInstance], waiting: Sequence[_Waiting]) -> int:
    checked = await ctx.catalog.checks.check(cloud)
    subject, now = f"{cloud}/{ctx.providers[cloud].account}", ctx.clock.now()
    if (code := account_code(checked)) in ACCOUNT_CODES:
        rate_usd_h = sum((rate_now(row) for row in machines), Decimal(0))
        where = ctx.providers[cloud].capabilities.pay_page if code == InsufficientFunds.code else checked.where
        until = max((grace.until for grace, _, _ in waiting), default=None)
        text = account_text.incident(cloud, code, len(machines), rate_usd_h, until, where)
        async with ctx.db.write() as tx:
            return int(await page_in(ctx, tx, f"{subject}/account", text, now))
    if not checked.ok:
        return 0  # A check without an answer ends no incident.
    refused = sum(grace.cause is Cause.MARKET for grace, _, _ in waiting)
    done = await _over(ctx, cloud, f"{subject}/account", refused, now)
    for _, row, _ in waiting:
        done += await alone(ctx, row.id, "its start", _start_again(ctx, row, now), 0)
    return done + await _runway(ctx, cloud, machines, checked, f"{subject}/runway", now)


async def _over(ctx: Context, cloud: str, subject: str, refused: int, now: datetime) -> int:
    """Say that the account can be used again, in the same message, and how many starts were refused since."""
    async with ctx.db.write() as tx:
        shown = await notification_of(tx, NotificationKind.OPERATOR_PAGE, subject, OPERATORS)
        text = account_text.over(cloud, refused)
        before = str(shown.body.get("text", "")) if shown is not None else ""
        is_said = before.startswith(account_text.over(cloud)) and not refused
        if shown is None or is_said or before == text:
            return 0
        return int(await page_in(ctx, tx, subject, text, now))


async def _start_again(ctx: Context, seen: Instance, now: datetime) -> int:
    """Start a machine again that stopped because of its account, within what was approved."""
    async with ctx.db.write() as tx:
        await lock_family(tx, Instance, seen.id)
        row = await tx.get_one(Instance, seen.id, populate_existing=True)
        fresh = await open_grace(tx, row.id)
        if fresh is None or row.state is not InstanceState.LIVE:
            return 0
        session = await tx.get_one(Session, row.session_id, populate_existing=True)
        why = "The account at its cloud can be used again, so the machine starts again."
        return int(await start_again(tx, fresh, row, session, why, now))


async def _runway(
    ctx: Context, cloud: str, machines: Sequence[BilledInstance], checked: Preflight, subject: str, now: datetime
) -> int:
    """Announce a balance that pays for fewer hours than the policy wants, of what costs money there now."""
    if checked.balance is None:
        return 0
    rate_usd_h = max(sum((rate_now(row) for row in machines), Decimal(0)), checked.balance.spend_usd_h)
    hours = account_text.runway_h(checked.balance.credit_usd, rate_usd_h)
    if hours is None or hours >= ctx.policy.runway_hours:
        return 0
    async with ctx.db.write() as tx:
        kind = NotificationKind.OPERATOR_PAGE
        shown = await notification_of(tx, kind, subject, OPERATORS)
        pause = timedelta(seconds=ctx.timing.recovery_page_s)
        if shown is not None and now - (shown.sent_at or shown.created_at) < pause:
            return 0  # The figures change with every minute.
        pay_page = ctx.providers[cloud].capabilities.pay_page
        text = account_text.runway(cloud, checked.balance.credit_usd, rate_usd_h, hours, pay_page)
        return int(await page_in(ctx, tx, subject, text, now))
