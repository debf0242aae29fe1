"""Write what was spent as a FOCUS 1.2 file, and state what a team spent in a month."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from bot.rules.billing.focus import COLUMNS, focus_row
from bot.rules.values.phrases import usd
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.text import in_markdown
from bot.services.access import authorization
from bot.services.billing.costs import by_person
from bot.services.budgets import enforcement
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.kernel.actor import Actor
from ledger.kernel.calendar_spans import after
from ledger.kernel.states import RollupTier
from ledger.queries.shared_ledger import charges, unsettled_charges
from ledger.queries.spend import EVERYBODY, Purse, costs

#: Charges that are read in one transaction.
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Statement:
    """What one team spent in one month (UTC): dollars in all, and by owner, project, cloud and GPU."""

    team: str
    month: datetime
    total_usd: Decimal
    groups: Mapping[str, tuple[tuple[str, Decimal], ...]]


async def focus_csv(ctx: Context, actor: Actor | None, since: datetime, until: datetime) -> AsyncIterator[str]:
    """Yield the file in parts, its heading first: of one person with their programs, or of everybody without one."""
    yield _csv([dict(zip(COLUMNS, COLUMNS, strict=True))])
    async with ctx.db.read() as tx:
        purse = EVERYBODY if actor is None else Purse(await authorization.mine(tx, ctx.policy, actor))
        teams = {team: await enforcement.purse_of(ctx, tx, f"team:{team}") for team in ctx.policy.teams}
    last = None
    while True:
        async with ctx.db.read() as tx:
            page = await charges(tx, purse, since, until, last, PAGE)
            is_last = not page
            if is_last:  # What no bill has settled has no entry.
                page = await unsettled_charges(tx, purse, since, until)
        yield _csv([focus_row(one, _team_of(one.owner, teams)) for one in page])
        if is_last:
            return
        last = page[-1]


def _team_of(owner: str, teams: Mapping[str, Purse]) -> str:
    """Return the first team of the policy that somebody belongs to; empty for nobody's."""
    return next((team for team, purse in teams.items() if purse.whose is not None and owner in purse.whose), "")


def _csv(rows: list[dict[str, str]]) -> str:
    out = io.StringIO()
    csv.DictWriter(out, COLUMNS, lineterminator="\r\n").writerows(rows)
    return out.getvalue()


async def statement(ctx: Context, team: str, month: datetime) -> Statement | Reply:
    """State what a team's members and their programs spent in the month that begins then; a refusal for no team."""
    if team not in ctx.policy.teams:
        named = ", ".join(ctx.policy.teams) or "none"
        return refuse(ReplyCode.UNKNOWN_TEAM, f"The policy has no team {team[:40]}. Its teams: {named}.")
    by = ("owner", "label", "cloud", "gpu")
    async with ctx.db.read() as tx:
        purse = await enforcement.purse_of(ctx, tx, f"team:{team}")
        found = await costs(tx, purse, month, after(RollupTier.MONTH, month), by)
    groups = {name: tuple(found[name]) for name in by} | {"owner": by_person(ctx.policy, found["owner"])}
    return Statement(
        team,
        month,
        sum((amount_usd for _, amount_usd in found["cloud"]), Decimal(0)),
        {("project" if name == "label" else name): groups[name] for name in by},
    )


def as_markdown(found: Statement) -> str:
    """Render the statement as a page."""
    parts = [f"# {in_markdown(found.team)}: statement for {found.month:%B %Y}\n\nTotal: **{usd(found.total_usd)}**\n"]
    for title, rows in found.groups.items():
        lines = [f"| {in_markdown(name) or 'none'} | {usd(amount)} |" for name, amount in rows]
        parts.append("\n".join([f"## By {title}\n", f"| {title} | spent |", "|---|---:|", *lines]) + "\n")
    return "\n".join(parts)
