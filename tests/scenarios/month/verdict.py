"""What the month must have kept, judged from the ledger, from what was shown, and from the clouds' own books."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from statistics import median

from bot.services.audit import invariants
from bot.services.audit.invariants.money import SPENT
from bot.services.billing import true_up
from ledger.kernel.end_reason import EndReason
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState, NotificationKind, RequestState, SessionState
from ledger.models import Instance, Request
from ledger.queries.audit import Books, read_books
from providers.sandbox.engine import TrueInstance, truth
from tests.scenarios.month import spending
from tests.scenarios.month.faults import RAISES, Injector
from tests.scenarios.month.people import People
from tests.scenarios.month.spending import LATE, True_, fits
from tests.scenarios.month.town import Month

#: Ends that people, the policy or the approval ordered.
DUE_ENDS = frozenset(
    {"reservation_over", "hours_cap", "budget_cap", "drift_unconfirmed", "asked", "idle", "completed", "work_failed"}
)
#: Dollars that an instance may cost before somebody must have seen it.
LEAST = (Decimal(0), Decimal("0.01"))
MOST_TO_READY_S = 180.0
LEAST_READY = 0.95


@dataclass
class Line:
    """One cloud's line of the table."""

    cloud: str
    asked: int = 0
    approved: int = 0
    ready: int = 0
    waits_s: list[float] = field(default_factory=list)
    late: int = 0
    ledger_usd: Decimal = Decimal(0)
    bill_usd: Decimal = Decimal(0)
    unreconciled: int = 0
    faults: int = 0


@dataclass
class Verdict:
    """The table and everything that is wrong."""

    lines: dict[str, Line]
    broken: list[str] = field(default_factory=list)
    #: What explains sessions whose bill is far from what was booked, as far as rows and clouds tell.
    notes: list[str] = field(default_factory=list)
    #: Why approved requests never got ready, and how many.
    never_ready: Counter[str] = field(default_factory=Counter)
    #: Questions about more hours in all: how many were allowed, and how many left until they expired.
    longer: Counter[str] = field(default_factory=Counter)


async def judge(month: Month, people: People, injector: Injector) -> Verdict:
    """Look at everything."""
    ctx = month.life.ctx
    books = await read_books(ctx.db)
    seen = truth(month.engine, month.clouds.values())
    found = await invariants.check(ctx.db, month.clock, seen, is_settled=True, providers=ctx.providers)
    verdict = Verdict({cloud: Line(cloud) for cloud in month.clouds})
    # The bill is judged below, by session, where clouds differ in what they tell.
    verdict.broken += [str(one) for one in found if one.rule != "the ledger agrees with the bill"]
    verdict.broken += people.unexpected
    verdict.broken += month.board.slack.broken() if month.board.slack is not None else []
    _stories(verdict, people, books)
    _longer(verdict, people, books)
    true = {(item.cloud, item.ref): item for cloud in month.clouds.values() for item in cloud.instances()}
    _ends(verdict, month, books, true.values())
    _kills(verdict, books, true, injector)
    verdict.broken += spending.broken(month, books, true, injector)
    _told(verdict, month, books)
    _bills(verdict, month, books, true, injector)
    for (cloud, _), number in (Counter(month.engine.faults.bitten) + month.injected).items():
        if cloud in verdict.lines:
            verdict.lines[cloud].faults += number
    return verdict


def _stories(verdict: Verdict, people: People, books: Books) -> None:
    rows: defaultdict[str, list[Instance]] = defaultdict(list)
    for row in books.instances:
        rows[row.request_id].append(row)
    requests = {request.id: request for request in books.requests}
    for story in people.stories.values():
        if story.clicked_at and story.ready_at is None:
            why = _never_ready(requests[story.request_id], rows[story.request_id])
            verdict.never_ready[why or "no reason"] += 1
            if not why:
                verdict.broken.append(
                    f"never ready: {story.request_id} at {story.cloud} was approved, and nothing failed"
                )
        line = verdict.lines[story.cloud]
        line.asked += 1
        line.approved += bool(story.clicked_at)
        line.ready += story.ready_at is not None
        if story.clicked_at and story.ready_at:
            line.waits_s.append((story.ready_at - story.clicked_at[0]).total_seconds())
    approved, ready = (sum(getattr(line, name) for line in verdict.lines.values()) for name in ("approved", "ready"))
    if ready < LEAST_READY * approved:
        verdict.broken.append(f"ready: {ready} of {approved} approved requests got there")
    waits = [wait for line in verdict.lines.values() for wait in line.waits_s]
    if waits and median(waits) >= MOST_TO_READY_S:
        verdict.broken.append(f"click to ready: the median is {median(waits):.0f} s")


def _never_ready(request: Request, rows: list[Instance]) -> str:
    """What kept an approved request from a machine: how its creates and boots ended, or what it waits for."""
    ends = sorted({row.outcome_code for row in rows if row.reachable_at is None and row.outcome_code})
    if request.state in (RequestState.PENDING, RequestState.EXPIRED):
        ends.append("asked again")
    return " and ".join(ends)


def _longer(verdict: Verdict, people: People, books: Books) -> None:
    """More hours in all are somebody's decision of their own: what nobody allowed came to nothing, and is over."""
    allowed = {
        one.parent_id
        for one in books.requests
        if one.kind == RequestKind.OVERRIDE_12H and one.state is RequestState.APPROVED
    }
    open_ = {one.id for one in books.requests if one.state in (RequestState.QUOTING, RequestState.PENDING)}
    for request_id, was_allowed in people.longer.items():
        verdict.longer["allowed" if was_allowed else "left"] += 1
        if was_allowed != (request_id in allowed) or request_id in open_:
            verdict.broken.append(f"more hours: {request_id}: allowed by people: {was_allowed}, and it is not so")


def _ends(verdict: Verdict, month: Month, books: Books, true: Iterable[TrueInstance]) -> None:
    """No instance outlives its end by more than five minutes of reachable cloud."""
    rows = {row.label: row for row in books.instances}
    sessions = {session.id: session for session in books.sessions}
    for item in true:
        row = next((rows[label] for label in rows if item.name and item.name.lower().endswith(label)), None)
        if row is None:
            continue
        if not month.life.ctx.providers[item.cloud].capabilities.terminate:
            continue  # Its pushed timeout is its end.
        end = _end_of(row, item, sessions[row.session_id].deadline)
        over = (item.ended_at or month.now) - max(end, item.created_at) - month.unseen(item, end)
        if over > LATE:
            verdict.lines[item.cloud].late += 1
            verdict.broken.append(
                f"late: {item.cloud} {item.ref} of {row.id} ({row.state}, {row.outcome_code}) outlived "
                f"{end:%d %H:%M:%S} by {over}"
            )


def _end_of(row: Instance, item: TrueInstance, deadline: datetime | None) -> datetime:
    """When this instance should have ended: by order, by approval, or because nobody holds it."""
    if row.ref != item.ref:
        return row.live_at or row.ended_at or item.created_at
    ends = [at for at in (row.terminate_asked_at, deadline) if at is not None]
    return min(ends, default=row.ended_at or item.created_at)


def _kills(verdict: Verdict, books: Books, true: True_, injector: Injector) -> None:
    """What was ready and paid for ends by an order of people or policy, or because its cloud was made to fail."""
    for row in books.instances:
        if row.reachable_at is None or row.terminate_asked_at is None or row.outcome_code in DUE_ENDS:
            continue
        key = (row.cloud, str(row.ref))
        was_right = row.outcome_code == EndReason.WRONG_GPUS and key in true and fits(row, true[key])
        broke = set(injector.disturbed.get(key, ())) - RAISES
        if was_right or (not broke and row.outcome_code not in (EndReason.WRONG_GPUS, "billed_above_cap")):
            verdict.broken.append(f"killed: {row.cloud} {row.ref} of {row.id}: {row.outcome_code}: {row.outcome}")


def _told(verdict: Verdict, month: Month, books: Books) -> None:
    """Every end by the clock was tried to be told before the order, and nothing was shown twice."""
    tried: dict[str, datetime] = {}
    for shown in month.board.attempts:
        if shown.kind in (NotificationKind.SESSION_ENDING, NotificationKind.SESSION_IDLE):
            session_id = shown.subject.partition("/")[0]
            tried[session_id] = min(tried.get(session_id, shown.at), shown.at)
    for event in books.events:
        if event.kind != "session.moved" or event.after != SessionState.TERMINATING:
            continue
        if event.actor == "system:scheduler" and not tried.get(event.subject, event.at) < event.at:
            verdict.broken.append(f"unannounced: {event.subject} was ended at {event.at} and nobody was told before")
    twice = Counter((one.id, one.version) for one in month.board.attempts if one.arrived)
    kinds = {one.id: one.kind for one in month.board.attempts}
    verdict.broken += [f"shown twice: {kinds[one]} {one} version {v}" for (one, v), n in twice.items() if n > 1]
    pages: dict[tuple[str, str], datetime] = {}
    for one in month.board.attempts:
        if one.arrived and one.kind == NotificationKind.OPERATOR_PAGE:
            before = pages.get((one.subject, one.text))
            if before is not None and one.at - before < timedelta(seconds=month.timing.recovery_page_s):
                verdict.broken.append(f"paged twice: {one.subject}: {one.text}")
            pages[one.subject, one.text] = one.at


def _bills(verdict: Verdict, month: Month, books: Books, true: True_, injector: Injector) -> None:
    """By session and by cloud: what was booked is what was billed, or is known to lie between two amounts."""
    booked: defaultdict[str, Decimal] = defaultdict(Decimal)
    for entry in books.entries:
        if entry.kind in SPENT:
            losses = [side for side in (entry.debit, entry.credit) if side.startswith("loss:")]
            key = losses[0] if losses else str(entry.instance_id)
            booked[key] += -entry.amount_usd if entry.debit.startswith("payable:") else entry.amount_usd
    sessions: defaultdict[tuple[str, str], list[Decimal]] = defaultdict(lambda: [Decimal(0)] * 4)
    ours: list[tuple[str, str, str, str, Instance | None]]
    ours = [(row.cloud, row.ref, row.session_id, row.id, row) for row in books.instances if row.ref]
    owners = {row.id: row.session_id for row in books.instances}
    ours += [(x.cloud, x.ref, owners.get(x.instance_id or "", x.id), f"loss:{x.id}", None) for x in books.orphans]
    seen: set[tuple[str, str]] = set()
    for cloud, ref, session_id, key, row in ours:
        item = true.get((cloud, ref))
        bill = item.total_usd if item is not None and (cloud, ref) not in seen else Decimal(0)
        seen.add((cloud, ref))
        is_gone = row is not None and row.state is InstanceState.GONE
        limits = true_up.bounds(month.life.ctx, row) if row is not None and is_gone else None
        low, high = limits or (booked[key], booked[key])
        if row is None and true_up.reports_no_charges(month.life.ctx.providers[cloud].capabilities):
            low = Decimal(0)  # Nobody knows whether it ran before it was ended.
        sums = sessions[cloud, session_id]
        sums[0], sums[1], sums[2], sums[3] = sums[0] + booked[key], sums[1] + bill, sums[2] + low, sums[3] + high
    for (cloud, session_id), (mine, bill, low, high) in sessions.items():
        line = verdict.lines[cloud]
        if abs(mine - bill) > max(bill / 100, Decimal("0.05")):
            verdict.notes += [f"{cloud} {session_id}: booked {mine:.4f} [{low:.4f}, {high:.4f}], billed {bill:.4f}"]
            verdict.notes += [_story(row, true, injector) for *_, of, _, row in ours if of == session_id and row]
        line.ledger_usd += mine
        line.bill_usd += bill
        if low != high:
            line.unreconciled += 1
            fits = low - Decimal("0.01") <= bill <= high + Decimal("0.01")
        else:
            fits = abs(mine - bill) <= max(bill / 100, Decimal("0.05"))
        if not fits:
            verdict.broken.append(
                f"bill: {cloud} session {session_id}: booked {mine:.4f} [{low:.4f}, {high:.4f}], billed {bill:.4f}"
            )
    for line in verdict.lines.values():
        if not line.unreconciled and abs(line.ledger_usd - line.bill_usd) > line.bill_usd / 100:
            verdict.broken.append(f"bill: {line.cloud}: booked {line.ledger_usd:.2f}, billed {line.bill_usd:.2f}")
    given_up = {(row.cloud, row.name): true_up.bounds(month.life.ctx, row) for row in books.instances if not row.ref}
    unseen = [
        item
        for key, item in true.items()
        if key not in seen and item.total_usd > (given_up.get((item.cloud, item.name or "")) or LEAST)[1]
    ]
    verdict.broken += [
        f"unknown: {item.cloud} {item.ref} cost {item.total_usd:.4f}, and nobody saw it" for item in unseen
    ]


def _story(row: Instance, true: True_, injector: Injector) -> str:
    """One instance, as the ledger has it and as it was."""
    names: tuple[str, ...] = ("id", "state", "outcome_code", "price_usd_h", "storage_usd_h", "sent_at", "live_at")
    names += ("billing_from", "reachable_at", "unbilled_at", "billing_until")
    names += ("terminate_asked_at", "terminate_acked_at", "ended_at")
    told = ", ".join(f"{name} {_short(getattr(row, name))}" for name in names)
    item = true.get((row.cloud, str(row.ref)))
    real = f"gpu {item.gpu_s} s ${item.gpu_usd:.4f}, disk ${item.storage_usd:.4f}, " if item else "nothing"
    real += f"{_short(item.created_at)} to {_short(item.ended_at)}" if item else ""
    return f"  {told}; really {real}; {injector.disturbed.get((row.cloud, str(row.ref)), [])}"


def _short(value: object) -> str:
    return f"{value:%d %H:%M:%S}" if isinstance(value, datetime) else str(value)


def table(verdict: Verdict, month: Month, injector: Injector) -> str:
    """The month in lines that people read."""
    head = (
        "cloud",
        "asked",
        "approved",
        "ready",
        "share",
        "to ready",
        "late",
        "ledger $",
        "bill $",
        "off",
        "unrec.",
        "faults",
    )
    rows: list[tuple[str, ...]] = [head]
    for line in verdict.lines.values():
        share = f"{line.ready / line.approved:.1%}" if line.approved else "-"
        wait = f"{median(line.waits_s):.0f} s" if line.waits_s else "-"
        off = f"{(line.ledger_usd - line.bill_usd) / line.bill_usd:+.2%}" if line.bill_usd else "-"
        money = (f"{line.ledger_usd:.2f}", f"{line.bill_usd:.2f}", off)
        counts = (line.asked, line.approved, line.ready, share, wait, line.late, *money, line.unreconciled, line.faults)
        rows.append((line.cloud, *map(str, counts)))
    widths = [max(len(row[number]) for row in rows) for number in range(len(head))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    bitten = Counter(month.engine.faults.bitten) + month.injected
    names: Counter[str] = Counter()
    for (_, name), number in bitten.items():
        names[name] += number
    said = ", ".join(f"{name} {number}" for name, number in sorted(names.items()))
    rules = ", ".join(f"{cloud}: {name}" for cloud, name in injector.rules) or "none"
    never = ", ".join(f"{why} {number}" for why, number in verdict.never_ready.most_common()) or "none"
    longer = ", ".join(f"{what} {number}" for what, number in sorted(verdict.longer.items())) or "none"
    return "\n".join(
        [
            f"seed {month.seed}; {month.lives} lives; rules drawn: {rules}",
            *text,
            f"never ready: {never}; asked for more hours in all: {longer}",
            f"faults: {said}",
        ]
    )
