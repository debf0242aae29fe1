"""Hold what the ledger booked against what the clouds billed, instance by instance, once bills are settled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from decimal import Decimal

from bot.services.audit.invariants.money import SPENT
from bot.services.billing import true_up
from bot.services.runtime.context import Context
from ledger.kernel.states import InstanceState
from ledger.queries.audit import Books
from providers.sandbox.engine import TrueInstance

CENT, SHARE, LEAST_USD = Decimal("0.01"), Decimal("0.01"), Decimal("0.05")
#: The states of instances whose cost may lie in a range.
OVER = frozenset({InstanceState.GONE, InstanceState.TOMBSTONE})
#: The invariant that this module replaces: it takes no account of clouds that never say what they charged.
REPLACED = "the ledger agrees with the bill"


def differences(
    ctx: Context,
    books: Books,
    instances: Iterable[TrueInstance],
    unseen: Collection[str] = (),
    forgotten: frozenset[tuple[str, str]] = frozenset(),
) -> Iterator[str]:
    """Name every instance whose bill is not what was booked, nor in the range that was reported as unreconciled.

    `unseen` vanished by themselves before the ledger had them. Nobody can know of one that did so after its create was
    given up. `forgotten` had their rows in the part of the ledger that a restore of an older copy has lost: where no
    orphan was found of one, it had ended before anybody could look, and nothing is left that knows of it. Where a new
    approval found it by its label, what it had cost until then is in the lost part as well.
    """
    given_up = {(row.cloud, row.name): row.ended_at for row in books.instances if row.state is InstanceState.TOMBSTONE}
    booked: defaultdict[str, Decimal] = defaultdict(Decimal)
    for entry in books.entries:
        if entry.kind in SPENT:
            losses = [side for side in (entry.debit, entry.credit) if side.startswith("loss:")]
            amount = -entry.amount_usd if entry.debit.startswith("payable:") else entry.amount_usd
            booked[losses[0] if losses else str(entry.instance_id)] += amount
    instances = list(instances)
    true = {(item.cloud, item.ref): item for item in instances}
    ranges: defaultdict[tuple[str, str], tuple[Decimal, Decimal]] = defaultdict(lambda: (Decimal(0), Decimal(0)))
    for row in books.instances:
        # A create that was given up has no reference, but its instance had its name.
        mine, at = booked[row.id], (row.cloud, row.name if row.state is InstanceState.TOMBSTONE else str(row.ref))
        limits = true_up.bounds(ctx, row) if row.state in OVER else None
        low, high = limits or (mine, mine)
        high += before_usd(true.get(at), row.sent_at) if at in forgotten else Decimal(0)
        ranges[at] = (ranges[at][0] + low, ranges[at][1] + high)
    for orphan in books.orphans:
        mine, at = booked[f"loss:{orphan.id}"], (orphan.cloud, orphan.ref)
        # Where nobody says what was charged, nobody knows whether it ran before it was ended.
        silent = true_up.reports_no_charges(ctx.providers[orphan.cloud].capabilities)
        ranges[at] = (ranges[at][0] + (Decimal(0) if silent else mine), ranges[at][1] + mine)
    for item in instances:
        over_at = given_up.get((item.cloud, item.name or ""))
        if item.ref in unseen and over_at is not None and (item.ended_at is None or item.ended_at > over_at):
            continue
        found = ranges.get((item.cloud, item.ref)) or ranges.get((item.cloud, item.name or ""))
        bill = item.total_usd
        if found is None:
            if bill > CENT and forgotten.isdisjoint({(item.cloud, item.ref), (item.cloud, item.name or "")}):
                yield f"nothing is unseen: {item.cloud} {item.ref} cost ${bill:.4f}, and no row has it"
            continue
        margin = max(SHARE * bill, LEAST_USD if found[0] == found[1] else CENT)
        if not found[0] - margin <= bill <= found[1] + margin:
            yield f"{REPLACED}: {item.cloud} {item.ref}: ${found[0]:.4f} to ${found[1]:.4f} booked, ${bill:.4f} billed"


def before_usd(item: TrueInstance | None, sent_at: datetime | None) -> Decimal:
    """Return what an instance had cost before its row says that it was sent, at its mean rate."""
    if item is None or item.ended_at is None or sent_at is None or sent_at <= item.created_at:
        return Decimal(0)
    return item.total_usd * Decimal((sent_at - item.created_at) / (item.ended_at - item.created_at))
