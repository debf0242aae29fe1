"""Check the ledger's arithmetic, and the ledger against the clouds' bills."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from bot.services.audit.invariants.volume_approvals import notices
from bot.services.audit.invariants.world import Truth, Violation
from ledger.kernel.end_reason import EndReason
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.money import CENT
from ledger.kernel.states import GrantState, InstanceState, is_terminal
from ledger.models import GrantRow, Instance, LedgerEntry, Session
from ledger.queries.audit import Books
from providers.cloud_names import volumes_of

#: The ledger and the bill may differ by this share. The ledger may be above by a cent: an end that was only noticed is
#: booked when it was noticed. It may be below by no more than a few started seconds, which a small bill shows, too.
BILL_SHARE = Decimal("0.01")
ABOVE_USD = CENT
BELOW_S = 10
SPENT = (EntryKind.ACCRUE, EntryKind.TRUE_UP, EntryKind.LOSS)


def check(books: Books, bill_steps_s: Mapping[str, int]) -> list[Violation]:
    """Check entries, reservations and budgets. `bill_steps_s` are the seconds, by cloud, in whose steps it bills."""
    return [*_entries(books), *_reservations(books), *_budgets(books, bill_steps_s)]


def _entries(books: Books) -> Iterator[Violation]:
    keys = Counter(entry.key for entry in books.entries)
    for entry in books.entries:
        if entry.amount_usd <= 0 or entry.debit == entry.credit:
            yield Violation("every entry balances", entry.id, "it moves nothing, or moves it in a circle")
        if keys[entry.key] > 1:
            yield Violation("a fact is booked once", entry.id, f"the key {entry.key} is there twice")


def _reservations(books: Books) -> Iterator[Violation]:
    """Check that every grant reserved its whole cap at first, and released it when voided or when its session ended."""
    over = {session.id for session in books.sessions if is_terminal(session.state)}
    by_key = {entry.key: entry for entry in books.entries}
    for grant in books.grants:
        reserved, released = by_key.get(f"reserve/{grant.id}"), by_key.get(f"release/{grant.id}")
        if grant.total_cap_usd > 0 and (reserved is None or reserved.amount_usd != grant.total_cap_usd):
            yield Violation("budgets never overshoot", grant.id, "its cap was not reserved")
        if grant.state is GrantState.VOID and reserved is not None and released is None:
            yield Violation("budgets never overshoot", grant.id, "it is void and still reserves its cap")
        if grant.session_id in over and reserved is not None and released is None:
            yield Violation("budgets never overshoot", grant.id, "its session has ended and it reserves its cap")
        if released is not None and (reserved is None or released.amount_usd != reserved.amount_usd):
            yield Violation("every entry balances", grant.id, "it released something else than it reserved")


def _budgets(books: Books, bill_steps_s: Mapping[str, int]) -> Iterator[Violation]:
    """Check that a session cost no more than was approved for it, apart from the time that its end took."""
    approvals, own_ends = {row.id: row for row in books.approvals}, _own_ends(books)
    spent: defaultdict[str, Decimal] = defaultdict(Decimal)
    for entry in books.entries:
        # What a cloud charged beyond its own price was not approved by anybody, so it is not counted.
        # A change of the rate within an hour corrects an hour that was booked at one rate, and an end that became known
        # later gives back what was booked behind it.
        is_ours = entry.kind != EntryKind.TRUE_UP or "/gpu/rate-" in entry.key or "/behind-" in entry.key
        # What an orphan cost before it was adopted is a loss, and its approval counts from then on.
        if entry.kind in SPENT and entry.kind != EntryKind.LOSS and is_ours and entry.session_id:
            spent[entry.session_id] += _signed(entry)
    for session in books.sessions:
        # An extension is approved under a request of its own.
        mine = [g for g in books.grants if session.id == g.session_id or session.request_id == g.request_id]
        covers = {grant.approval_id for grant in mine}
        cap = sum((approvals[a].total_cap_usd or Decimal(0) for a in covers if a in approvals), Decimal(0))
        allowed = cap + _late_usd(books, session, own_ends[session.id], bill_steps_s) + _dear_usd(books, session, mine)
        if spent[session.id] > allowed:
            text = f"${spent[session.id]} was used, ${allowed} was approved"
            yield Violation("budgets never overshoot", session.id, text)


def _dear_usd(books: Books, session: Session, grants: Sequence[GrantRow]) -> Decimal:
    """Return what clouds charged above the approved rate, of instances that ended when their rate was first seen."""
    caps = {grant.id: grant.price_cap_usd_h for grant in grants}
    # Where a rate was seen before, the time before that is booked at the earlier one.
    split = {entry.instance_id for entry in books.entries if "/gpu/rate-" in entry.key}
    dear_usd = Decimal(0)
    for row in books.instances:
        cap_usd_h, seen_at = caps.get(row.grant_id), row.terminate_asked_at
        is_dear = (
            row.session_id == session.id and row.outcome_code == EndReason.BILLED_ABOVE_CAP and row.id not in split
        )
        if is_dear and cap_usd_h is not None and seen_at is not None and row.billing_from is not None:
            ran_h = Decimal((seen_at - row.billing_from).total_seconds()) / 3600
            dear_usd += max(row.price_usd_h - cap_usd_h, Decimal(0)) * ran_h
    return dear_usd


def _signed(entry: LedgerEntry) -> Decimal:
    """Return the amount of an entry, negative for a correction that gives money back."""
    return -entry.amount_usd if entry.debit.startswith("payable:") else entry.amount_usd


def _late_usd(books: Books, session: Session, own_ends: Sequence[datetime], bill_steps_s: Mapping[str, int]) -> Decimal:
    """Return the cost after the approved end, while the termination was under way.

    A checkpoint hold does not count as late: it was reserved. `own_ends` are those of `_own_ends`.
    """
    if session.deadline is None:
        return Decimal(0)
    late = Decimal(0)
    for row in books.instances:
        if row.session_id != session.id:
            continue
        end = max(session.deadline, row.checkpoint_until or session.deadline)
        # A volume that outgrew its amount is kept for its days of notices, whatever they cost.
        # What paid for the time until an end that only a record knew is in the lost part of the ledger.
        end = min([end, *notices(books, session.id), *own_ends])
        until = row.billing_until or _booked_until(books, row, is_late=bool(own_ends))
        if until is not None and until > end:
            # A step that has started is billed in full.
            late_s = (until - end).total_seconds() + bill_steps_s.get(row.cloud, 1)
            late += row.price_usd_h * Decimal(late_s) / 3600
    return late


def _own_ends(books: Books) -> defaultdict[str, list[datetime]]:
    """Return the ends that the ledger itself knew, by session, where a later end came from a record."""
    ends: defaultdict[str, list[datetime]] = defaultdict(list)
    for event in books.events:
        if event.kind == EventKind.SESSION_END_RECORDED:
            ends[event.subject].append(datetime.fromisoformat(event.data["before"]))
    return ends


def _booked_until(books: Books, row: Instance, *, is_late: bool) -> datetime | None:
    """Return until when a volume, or an instance that is still being ended, is booked; None for every other one.

    While its cloud does not answer, its hours complete, and each is booked. Nobody knows yet when its billing ends.
    `is_late`: it may run behind the end that the ledger itself had approved.
    """
    if not is_late and row.state is not InstanceState.TERMINATING and row.cloud != volumes_of(row.cloud):
        return None
    return max(
        (one.at for one in books.entries if one.instance_id == row.id and one.kind == EntryKind.ACCRUE), default=None
    )


def against_the_bill(books: Books, truth: Truth) -> Iterator[Violation]:
    """Check for each ended instance that its booked cost, of a session or a loss, equals the cloud's bill.

    An instance that counted as gone and was listed again is booked first as a session's and then as an orphan's. The
    bill has one instance.
    """
    booked: defaultdict[str, Decimal] = defaultdict(Decimal)
    for entry in books.entries:
        if entry.kind in SPENT:
            losses = [side for side in (entry.debit, entry.credit) if side.startswith("loss:")]
            booked[losses[0] if losses else str(entry.instance_id)] += _signed(entry)
    ours: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
    rates: dict[tuple[str, str], Decimal] = {}
    for row in books.instances:
        if row.state is InstanceState.GONE:
            ours[row.cloud, str(row.ref)] += booked[row.id]
            rates[row.cloud, str(row.ref)] = row.price_usd_h
    for orphan in books.orphans:
        if orphan.ended_at is not None:
            ours[orphan.cloud, orphan.ref] += booked[f"loss:{orphan.id}"]
            rates[orphan.cloud, orphan.ref] = orphan.price_usd_h
    for item in truth["instances"]:
        at = (item["cloud"], item["ref"])
        mine, bill = ours.get(at), Decimal(item["total_usd"])
        if mine is None:
            continue
        below_usd = min(rates[at] * BELOW_S / 3600, CENT)
        if not -max(BILL_SHARE * bill, below_usd) <= mine - bill <= max(BILL_SHARE * bill, ABOVE_USD):
            text = f"${mine} is booked, {item['cloud']} billed ${bill}"
            yield Violation("the ledger agrees with the bill", item["ref"], text)
