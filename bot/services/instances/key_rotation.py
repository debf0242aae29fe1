"""Move instances to a new API key of the same account, when the account is proved to be the same.

A row keeps the fingerprint of the key that its instance was created with, because only listings of that account prove
anything about it. A new key belongs to the same account when it lists an instance with the id that a row has and with
that row's label, which nobody can forge and which only one instance has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bot.rules.values.command_text import cli_command
from bot.rules.values.labels import LabelKey, LabelKind
from bot.rules.values.phrases import plural
from bot.services.billing.true_up import COMPARED
from bot.services.notifications.paging import OPERATORS
from bot.services.runtime.context import Context
from ledger.core import announce
from ledger.kernel.actor import SYSTEM
from ledger.kernel.states import NotificationKind
from ledger.models import Orphan
from ledger.queries.cloud_accounts import AccountInUse, move_account
from ledger.queries.lookups import Open
from providers.contract import Listing, Provider


def proven(labels: LabelKey, listing: Listing, rows: Iterable[Open | Orphan]) -> set[str]:
    """Return the accounts of rows that this complete listing of another key proves to be the listed account."""
    items = {item.ref: item for item in listing.items}
    others = [(row, items.get(row.ref or "")) for row in rows if row.account != listing.account]
    shown = [(row, labels.read(item.name)) for row, item in others if item is not None]
    return {row.account for row, read in shown if read.kind is LabelKind.OURS and read.label == row.label}


async def take_over(ctx: Context, listing: Listing, before: set[str]) -> None:
    """Move the rows of these accounts to the listed account, in its own transaction, and page the operators."""
    now = ctx.clock.now()
    reason = f"The key of {listing.cloud} was changed, and the new one can read the instances of the old one."
    async with ctx.db.write() as tx:
        moved = await move_account(
            tx,
            listing.cloud,
            sorted(before),
            listing.account,
            ended_since=now - COMPARED,
            at=now,
            actor=SYSTEM,
            reason=reason,
        )
        sentence = f"{reason} {plural(moved, 'open instance')} can be monitored and terminated again."
        kind, subject = NotificationKind.OPERATOR_PAGE, f"{listing.cloud}/{listing.account}/taken-over"
        if moved:
            await announce(tx, now, kind, subject, destination=OPERATORS, body={"text": sentence})
    ctx.hints.outbox.set()


def unreachable(held: Iterable[AccountInUse], providers: Mapping[str, Provider]) -> list[tuple[AccountInUse, str]]:
    """Return the accounts with open instances that are not set up here, each with a sentence that says so."""
    found = [one for one in held if one.cloud not in providers or providers[one.cloud].account != one.account]
    return [(one, _sentence(one)) for one in found]


def _sentence(one: AccountInUse) -> str:
    gone = cli_command(f"unreachable gone {one.cloud}/{one.account} --reason WHY")
    return (
        f"{plural(one.count, 'open instance')} at {one.cloud} can't be monitored or terminated, and may cost money. "
        f"Account {one.account} created {'it' if one.count == 1 else 'them'}, and none of its keys is set up here "
        f"since {one.since:%Y-%m-%d %H:%M} UTC. Set up a key of that account. If nothing is left there: {gone}"
    )
