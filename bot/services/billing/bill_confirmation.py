"""List bills above what their instance can have cost, and correct the ledger by one that an operator confirms."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import usd
from bot.rules.values.reply_code import ReplyCode
from bot.services.billing.true_up import COMPARED, BillComparison, book_differences, compare, name_of
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.kernel.actor import Actor
from ledger.kernel.money import CENT
from ledger.queries.cloud_bills import BillSubject, account_of, accounts, subject_of


@dataclass(frozen=True, slots=True)
class UnconfirmedBill:
    """A bill that is not booked, in dollars: what it says, what the ledger says, and the most that was approved."""

    id: str
    cloud: str
    ref: str
    session_id: str | None
    billed_usd: Decimal
    booked_usd: Decimal
    most_usd: Decimal


async def unconfirmed(ctx: Context) -> list[UnconfirmedBill]:
    """List the bills of the last 30 days that wait for an operator."""
    now = ctx.clock.now()
    found: list[UnconfirmedBill] = []
    for provider in ctx.providers.values():
        if provider.capabilities.charges:
            async with ctx.db.read() as tx:
                subjects = await accounts(tx, [(provider.name, provider.account)], now - COMPARED)
            compared = [(one, compare(one, provider.capabilities, now, ctx.timing.sweep_s)) for one in subjects]
            found += [_shown(one, bill) for one, bill in compared if bill.above]
    return found


def _shown(one: BillSubject, bill: BillComparison) -> UnconfirmedBill:
    return UnconfirmedBill(one.id, one.cloud, one.ref, one.session_id, bill.billed_usd, bill.booked_usd, bill.most_usd)


async def confirm(ctx: Context, row_id: str, amount_usd: Decimal, actor: Actor, reason: str) -> Reply:
    """Correct the ledger by the bill of one instance. `amount_usd` is the bill that the operator saw, to the cent."""
    if not reason.strip():
        return refuse(ReplyCode.REASON_NEEDED, "Say why, for the audit log: --reason 'the invoice shows it'.")
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        seen = await subject_of(tx, row_id)
        found = await account_of(tx, seen) if seen is not None else None
        if found is None:
            return refuse(
                ReplyCode.UNKNOWN_ID, f"There is no ended instance or orphan {row_id}. See {cli_command('bills list')}."
            )
        provider = ctx.providers.get(found.cloud)
        if provider is None:
            return refuse(ReplyCode.CLOUD_GONE, f"{found.cloud} is not set up here, so its bill cannot be compared.")
        bill = compare(found, provider.capabilities, now, ctx.timing.sweep_s)
        if not bill.above:
            return refuse(ReplyCode.STALE, f"The bill of {name_of(found)} needs no confirmation now.")
        if abs(bill.billed_usd - amount_usd) >= CENT:
            sentence = f"The bill of {name_of(found)} says {usd(bill.billed_usd)} now. Confirm that amount."
            return refuse(ReplyCode.AMOUNT_MISMATCH, sentence)
        await book_differences(tx, found, bill, now, actor, reason)
    return Reply(True, ReplyCode.BILL_CONFIRMED, f"{name_of(found).capitalize()} now costs {usd(bill.billed_usd)}.")
