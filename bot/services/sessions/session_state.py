"""Return the state of a session in words and its present cost per hour, the same in every list.

A machine that its cloud stopped, took back or lost is not *running*, and costs what its cloud bills meanwhile.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from bot.rules.instances.health import trouble
from bot.rules.instances.unplanned_end import cost_until
from bot.rules.values.phrases import rate, usd
from bot.rules.values.state_text import LOST_MACHINE, state_words
from bot.services.billing.present_rate import rate_now
from bot.services.checkpoints.hold import disk_rate
from bot.services.sessions.lost_machine import lost_machine
from ledger.kernel.end_reason import END_LABELS, EndReason
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import GraceRow, Instance
from ledger.queries.views import SessionView
from providers.contract import InstanceStatus

#: A machine counts as running for so long after the newest sign of it.
RECENT: Final = timedelta(minutes=5)

_BY_STATUS: Final = {InstanceStatus.OFFLINE: "out of contact", InstanceStatus.ERROR: "failed"}


def words(view: SessionView, now: datetime) -> str:
    """Name the state of a session, as in `0t5cnx is outbid, in grace` or `0t5cnx is running as of 14:02 UTC`."""
    session, row, grace = view.session, view.instance, view.grace
    if view.retained_disk and session.state is SessionState.TERMINATING:
        return "only its disk is left"
    if lost_machine(view):
        return LOST_MACHINE
    if session.state is not SessionState.RUNNING or row is None:
        return state_words(session.state)
    if grace is not None and grace.replaced and grace.instance_id != row.id:
        return "launching a replacement" if row.reachable_at is None else state_words(session.state)
    wrong = problem(row, grace)
    if not wrong:
        return f"{state_words(session.state)}{_as_of(view, row, now)}"
    return f"{wrong}, in grace" if grace is not None else wrong


def _as_of(view: SessionView, row: Instance, now: datetime) -> str:
    """Return the time of the newest sign of a machine, where that is not recent; "" where it is.

    A sign is its cloud's listing, a report of its agent, or its first login. A listing without it is none, and of
    several machines only a listing shows all.
    """
    absent_at = map(datetime.fromisoformat, row.absent_at or ())
    listed_at = min([view.listed_at, *absent_at]) if view.listed_at is not None else None
    own = (view.node.at if view.node is not None else None, row.reachable_at) if not view.others else ()
    seen_at = max((at for at in (listed_at, *own) if at is not None), default=None)
    if seen_at is None or now - seen_at <= RECENT:
        return ""
    return f" as of {seen_at:{'%H:%M' if seen_at.date() == now.date() else '%Y-%m-%d %H:%M'}} UTC"


def problem(row: Instance, grace: GraceRow | None) -> str:
    """Return what is wrong with a machine, in a few words; "" where nothing is."""
    if row.state is InstanceState.STOPPED:
        return state_words(SessionState.STOPPED)  # Beside a replacement that has ended.
    if row.trouble_at is not None and row.status and row.state is InstanceState.LIVE:
        found = trouble(row.status, spot=bool(row.offer.get("spot")), other=row.other_gpus)
        if found is not None:
            return _BY_STATUS.get(InstanceStatus(row.status), found.code.label)
    return END_LABELS.get(grace.code, "") if grace is not None and grace.code == EndReason.NO_HEARTBEAT else ""


def now_usd_h(view: SessionView) -> Decimal | None:
    """Return what an hour of a session costs now; None without a machine.

    A stopped machine costs its disk. A machine that does not work costs what its cloud bills meanwhile. A machine in
    grace beside its replacement is added.
    """
    row, grace = view.instance, view.grace
    if view.disk is not None and not (grace is not None and grace.replaced):
        return view.disk.price_usd_h
    if row is None:
        return None
    if view.session.state is SessionState.STOPPED or row.state is InstanceState.STOPPED:
        return disk_rate(row)
    beside = grace.usd_h if grace is not None and grace.replaced and grace.instance_id != row.id else Decimal(0)
    if row.trouble_at is not None and not view.others:
        return rate_now(row) + beside
    return view.price_usd_h + beside


def grace_line(grace: GraceRow, now: datetime, until: str = "") -> str:
    """Say what a grace costs and until when it lasts. `until` is that time in the reader's format."""
    spent_usd = cost_until(grace.spent_usd, grace.usd_h, grace.rated_at, now)
    costs = f"Waiting costs {rate(grace.usd_h)}, {usd(spent_usd)} so far" if grace.usd_h else "Waiting costs nothing"
    kept = "The first machine's disk stays" if grace.replaced else "The machine stays"
    return f"{kept} until {until or f'{grace.until:%Y-%m-%d %H:%M} UTC'}. {costs}."
