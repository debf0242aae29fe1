"""What must follow when machines cost more than was approved, or are not what was approved: asked, told, ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import GrantState, NotificationKind, RequestState, SessionState
from ledger.models import Instance, Option, Request, Session
from ledger.queries.audit import Books
from providers.sandbox.engine import TrueInstance
from tests.scenarios.month.faults import Injector
from tests.scenarios.month.town import SWEEP_S, Month

True_ = dict[tuple[str, str], TrueInstance]
#: An instance may outlive its end by so much, and what is to follow may take so long, of reachable cloud.
LATE = timedelta(minutes=5)
SWEEP = timedelta(seconds=SWEEP_S)
CENTS = Decimal("0.05")
HOUR = timedelta(hours=1)
#: What is recorded of a session whose new figure nobody confirmed.
ACTED = frozenset({"spend.paused", "spend.saving"})
#: A month looks at costs this often, instead of every minute and at every new rate.
ASKED_EVERY = timedelta(minutes=5)
#: What the question about a new rate says.
ABOVE_RATE = "above the approved"


def broken(month: Month, books: Books, true: True_, injector: Injector) -> list[str]:
    """Everything that is not as it must be."""
    found = [*_above_caps(month, books, true), *_unasked(month, books, true), *_unanswered(month, books, true)]
    return [*found, *_still_dear(month, books, true, injector), *_wrong(month, books, true), *_untold(month, books)]


def fits(row: Instance, item: TrueInstance) -> bool:
    """Whether it really has the GPUs that were approved."""
    return item.gpu == row.offer["gpu"] and item.gpu_count >= int(row.offer["gpu_count"])


def _pairs(books: Books, true: True_) -> Iterator[tuple[Instance, TrueInstance]]:
    for row in books.instances:
        item = true.get((row.cloud, str(row.ref)))
        if item is not None:
            yield row, item


def _extra(month: Month, row: Instance, item: TrueInstance) -> Decimal:
    """Dollars that nobody could keep it from costing: the lateness that is allowed, and what could not be seen."""
    unseen = month.unseen(item, item.created_at)
    return 2 * row.price_usd_h * Decimal((LATE + unseen) / HOUR) + CENTS


def _above_caps(month: Month, books: Books, true: True_) -> Iterator[str]:
    """Nothing costs more than the most that was approved in all."""
    grants = {grant.id: grant for grant in books.grants}
    extended: defaultdict[str | None, Decimal] = defaultdict(Decimal)
    for grant in books.grants:
        if grant.kind == "extend" and grant.state is not GrantState.VOID:
            extended[grant.session_id] += grant.total_cap_usd
    for row, item in _pairs(books, true):
        cap_usd = grants[row.grant_id].total_cap_usd + extended[row.session_id]
        if item.total_usd > cap_usd + _extra(month, row, item):
            yield f"above its cap: {row.cloud} {row.ref} of {row.id} cost {item.total_usd:.4f} of {cap_usd:.4f}"


def _unasked(month: Month, books: Books, true: True_) -> Iterator[str]:
    """A session that cost more than its approved figure by the tolerance was asked about, or ended for it."""
    options = {option.id: option for option in books.options}
    asked = {request.parent_id for request in books.requests if request.kind == RequestKind.OVERSPEND}
    more = _extensions(books)
    by_session: defaultdict[str, list[tuple[Instance, TrueInstance]]] = defaultdict(list)
    for row, item in _pairs(books, true):
        by_session[row.session_id].append((row, item))
    paid_by = {grant.id: grant.approval_id for grant in books.grants}
    for session in books.sessions:
        pairs = by_session[session.id]
        # People who were asked again decided on what was still to come.
        pairs = [one for one in pairs if paid_by[one[0].grant_id] == paid_by[pairs[-1][0].grant_id]]
        if not pairs or session.request_id in asked or any(r.outcome_code == "billed_above_cap" for r, _ in pairs):
            continue
        figure_usd = options[pairs[-1][0].option_id].expected_usd + more[session.request_id]
        bill_usd = sum((item.total_usd for _, item in pairs), Decimal(0))
        extra_usd = sum((_extra(month, row, item) for row, item in pairs), Decimal(0))
        if bill_usd > figure_usd * month.policy.price_tolerance + extra_usd:
            yield f"unasked: {session.id} cost {bill_usd:.4f}, was approved at {figure_usd:.4f}, and nobody was asked"


def _extensions(books: Books) -> defaultdict[str | None, Decimal]:
    """What approved extensions of each request added to its figure."""
    quotes = {quote.id: quote for quote in books.quotes}
    by_version: dict[tuple[str, int], Option] = {}
    for option in books.options:
        quote = quotes[option.quote_id]
        by_version.setdefault((quote.request_id, quote.version), option)
    more: defaultdict[str | None, Decimal] = defaultdict(Decimal)
    for one in books.requests:
        if one.kind == "extend" and one.state is RequestState.APPROVED:
            more[one.parent_id] += by_version[one.id, one.quote_version].expected_usd
    return more


def _unanswered(month: Month, books: Books, true: True_) -> Iterator[str]:
    """A new figure that nobody confirms in time pauses the session, or lets its agent save where no stop helps.

    A new rate that nobody answers changes nothing but the end.
    """
    sessions = {session.request_id: session for session in books.sessions}
    acted: defaultdict[str, list[datetime]] = defaultdict(list)
    ended: dict[str, datetime] = {}
    for event in books.events:
        if event.kind in ACTED:
            acted[event.subject].append(event.at)
        elif event.kind == "session.moved" and event.after != SessionState.RUNNING:
            ended.setdefault(event.subject, event.at)
    for one in books.requests:
        if one.kind != RequestKind.OVERSPEND or one.state is RequestState.APPROVED or one.parent_id is None:
            continue
        if ABOVE_RATE in one.reason:
            continue
        session = sessions[one.parent_id]
        by = (
            one.created_at
            + timedelta(seconds=month.policy.overspend_answer_s)
            + LATE
            + _unseen(month, session, one, true, books)
        )
        over = [at for at in (one.decided_at, _end(books, session, one.created_at)) if at is not None]
        if not any(one.created_at <= at <= by for at in acted[session.id]) and not any(at <= by for at in over):
            yield f"unconfirmed: nobody answered {one.id} of {session.id}, and nothing followed by {by:%d %H:%M}"


def _end(books: Books, session: Session, since: datetime) -> datetime | None:
    """When the session stopped running after that."""
    moves = [e.at for e in books.events if e.subject == session.id and e.kind == "session.moved" and e.at >= since]
    return min(moves, default=None)


def _unseen(month: Month, session: Session, one: Request, true: True_, books: Books) -> timedelta:
    found = [item for row, item in _pairs(books, true) if row.session_id == session.id]
    return month.unseen(found[-1], one.created_at) if found else timedelta(0)


def _still_dear(month: Month, books: Books, true: True_, injector: Injector) -> Iterator[str]:
    """A rate above what was approved is asked about, unless an earlier question covers it or the session stops."""
    grants = {grant.id: grant for grant in books.grants}
    sessions = {session.id: session for session in books.sessions}
    asked = _asked_rates(month, books)
    rows = {(row.cloud, str(row.ref)): row for row in books.instances}
    for cloud, ref, at, usd_h in injector.raised:
        row, item = rows.get((cloud, ref)), true[cloud, ref]
        if row is None or usd_h <= grants[row.grant_id].price_cap_usd_h:
            continue
        by = at + LATE + ASKED_EVERY + month.unseen(item, at)
        moved_at = _end(books, sessions[row.session_id], at)
        if any(since <= by and (since >= at or covers >= usd_h) for since, covers in asked[row.request_id]):
            continue
        if min(row.terminate_asked_at or month.now, item.ended_at or month.now, moved_at or month.now) > by:
            yield f"too dear: {cloud} {ref} of {row.id} costs {usd_h:.4f}/h since {at:%d %H:%M:%S} and nobody was asked"


def _asked_rates(month: Month, books: Books) -> defaultdict[str | None, list[tuple[datetime, Decimal]]]:
    """When each session was asked about, by its request, and the rate that the answer covers."""
    quotes = {quote.id: quote.request_id for quote in books.quotes}
    prices = {quotes[option.quote_id]: option.price_usd_h for option in books.options}
    found: defaultdict[str | None, list[tuple[datetime, Decimal]]] = defaultdict(list)
    for one in books.requests:
        if one.kind == RequestKind.OVERSPEND:
            found[one.parent_id].append((one.created_at, prices[one.id] * month.policy.price_tolerance))
    return found


def _wrong(month: Month, books: Books, true: True_) -> Iterator[str]:
    """A machine with other GPUs than were approved is ended, unless it is kept because waiting is cheap."""
    kept = {one.instance_id for one in books.graces}
    grace = timedelta(seconds=month.timing.broken_grace_s) + SWEEP + LATE
    for row, item in _pairs(books, true):
        if row.reachable_at is None or fits(row, item) or row.id in kept:
            continue
        by = row.reachable_at + grace + month.unseen(item, row.reachable_at)
        if (row.terminate_asked_at or item.ended_at or month.now) > by:
            yield f"wrong GPUs: {row.cloud} {row.ref} of {row.id} has {item.gpu} and was not ended by {by:%d %H:%M}"


def _untold(month: Month, books: Books) -> Iterator[str]:
    """The people of a machine were notified of its trouble before its end was acted on."""
    tried: dict[str, datetime] = {}
    for shown in month.board.attempts:
        if shown.kind == NotificationKind.SESSION_INTERRUPTED:
            tried[shown.subject] = min(tried.get(shown.subject, shown.at), shown.at)
    for row in books.instances:
        if row.reachable_at is None or row.terminate_acked_at is None or row.outcome_code not in FAILED:
            continue
        at = tried.get(f"{row.session_id}/{row.id}")
        if at is None or at > row.terminate_acked_at:
            yield f"untold: {row.cloud} {row.ref} of {row.id} was ended ({row.outcome_code}) before anybody was told"


#: Ends of a machine in use that nobody asked for and no clock announced.
FAILED = frozenset({"billed_above_cap", "broken", "outbid", "stopped_there", "restarting", "wrong_gpus"})
