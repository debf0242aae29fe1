"""Build the answers to `/gpu list`, `/gpu list team` and `/gpu history`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from bot.rules.jobs import job_text
from bot.rules.jobs.stored import job_of
from bot.rules.sessions.expiration import left
from bot.rules.values.phrases import at_rate, plural, rate
from bot.rules.values.state_text import state_words
from bot.services.nodes.job_results import job_status_of
from bot.services.runtime import recovery_mode
from bot.services.sessions import session_state
from bot.services.sessions.service import Overview
from bot.slack.blocks.elements import Block, Message, clip, code, context, dollars, person, safe, section, when
from bot.slack.blocks.progress import ran_for
from bot.slack.blocks.session.session_ready_and_ended import what
from ledger.kernel.end_reason import END_LABELS
from ledger.kernel.ids import short_id
from ledger.models import Request
from ledger.queries.views import SessionView

SHOWN = 15


def listing(
    overview: Overview,
    costs_usd: Mapping[str, Decimal],
    command: str,
    now: datetime,
    decidable: Sequence[Request] = (),
) -> Message:
    """List sessions and requests; `costs_usd` is each session's cost by id, `decidable` waits for the reader."""
    blocks = [*sessions(overview.sessions, costs_usd, now), *requests(overview.requests)]
    blocks += requests(decidable, "Needs you")
    if not blocks:
        nothing = f"You have no sessions or requests. To request GPUs: {code(f'{command} provision')}"
        return Message.of(nothing)
    hint = f"{code(f'{command} status ID')} shows one of them, {code(f'{command} terminate ID')} ends a session."
    spoken = [_session_line(view, costs_usd, now) for view in overview.sessions[:SHOWN]]
    spoken += [_request_line(request) for request in [*overview.requests[:SHOWN], *decidable[:SHOWN]]]
    for waits in dict.fromkeys(filter(None, map(recovery_mode.of_session, overview.sessions))):
        blocks.append(section(f":warning: {safe(waits, 600)}"))
        spoken.insert(0, waits)
    return Message(clip("; ".join(spoken), 3_900), (*blocks, context(hint)))


def team(views: Sequence[SessionView], costs_usd: Mapping[str, Decimal], command: str, now: datetime) -> Message:
    """List everybody's sessions with owner, end and cost, below what they cost together."""
    if not views:
        return Message.of("The team has no sessions.")
    rate_usd_h = sum((_rate_usd_h(view) for view in views), Decimal(0))
    so_far_usd = sum((costs_usd[view.session.id] for view in views), Decimal(0))
    lead = f"*Team*: {plural(len(views), 'session')} {at_rate(rate_usd_h)}, {dollars(so_far_usd)} so far"
    hint = f"{code(f'{command} history team')} lists those that ended, {code(f'{command} status ID')} shows one."
    spoken = [lead, *(_session_line(view, costs_usd, now) for view in views[:SHOWN])]
    blocks = _chunks(f":busts_in_silhouette: {lead}", spoken[1:], len(views))
    return Message(clip("; ".join(spoken), 3_900), (*blocks, context(hint)))


def _rate_usd_h(view: SessionView) -> Decimal:
    """Return what a session costs per hour now: nothing without a machine, its disk alone while that is stopped."""
    return session_state.now_usd_h(view) or Decimal(0)


def history(
    views: Sequence[SessionView], costs_usd: Mapping[str, Decimal], command: str, *, everybody: bool
) -> Message:
    """List sessions that ended: when, how long they ran, their total, and why they ended."""
    if not views:
        return Message.of("No session has ended yet." if everybody else "None of your sessions has ended yet.")
    title = "Ended sessions of the team" if everybody else "Your ended sessions"
    lines = [_past_line(view, costs_usd[view.session.id], everybody=everybody) for view in views]
    hint = f"The newest first. {code(f'{command} costs')} shows what was spent, {code(f'{command} status ID')} one."
    blocks = _chunks(f":checkered_flag: *{title}*", lines, len(lines))
    return Message(clip("; ".join([title, *lines]), 3_900), (*blocks, context(hint)))


def _past_line(view: SessionView, cost_usd: Decimal, *, everybody: bool) -> str:
    session, row = view.session, view.instance
    parts = [f"{code(session.short_id)} {what(session)}"]
    parts += [safe(row.cloud, 30)] if row is not None else []
    parts += [person(session.owner)] if everybody else []
    parts += [f"ended {when(session.ended_at)}"] if session.ended_at else []
    parts += [f"ran {ran_for(session)}" if ran_for(session) else "never became ready", dollars(cost_usd)]
    label, job = END_LABELS.get(session.end_code), job_status_of(view)
    parts += [label] if label else []
    return " · ".join([*parts, f"job {job.line}"] if job is not None else parts)


def sessions(
    views: Sequence[SessionView], costs_usd: Mapping[str, Decimal], now: datetime, title: str = "Sessions"
) -> list[Block]:
    """Build the sections of live sessions."""
    lines = [_session_line(view, costs_usd, now) for view in views[:SHOWN]]
    return _chunks(f":computer: *{title}*", lines, len(views))


def requests(rows: Sequence[Request], title: str = "Waiting requests") -> list[Block]:
    """Build the sections of requests that wait."""
    return _chunks(f":inbox_tray: *{title}*", [_request_line(request) for request in rows[:SHOWN]], len(rows))


def _chunks(title: str, lines: list[str], in_all: int) -> list[Block]:
    if not lines:
        return []
    shown = [*lines, f"… and {in_all - len(lines)} more"] if in_all > len(lines) else lines
    starts = range(0, len(shown), 5)
    return [section("\n".join(([title] if start == 0 else []) + shown[start : start + 5])) for start in starts]


def _session_line(view: SessionView, costs_usd: Mapping[str, Decimal], now: datetime) -> str:
    session, row = view.session, view.instance
    parts = [
        f"{code(session.short_id)} {what(session)}",
        state(view, now),
        " with ".join([person(session.owner), *filter(None, [", ".join(map(person, view.shared_with))])]),
    ]
    if row is not None:
        parts.insert(1, f"{safe(row.cloud, 30)} {price(view)}")
    if (job := job_status_of(view)) is not None:
        parts.append(f"job {job.line}")
    if session.id in costs_usd:
        parts.append(f"{dollars(costs_usd[session.id])} so far")
    if view.grace is not None:
        parts.append(session_state.grace_line(view.grace, now, when(view.grace.until)))
    end = ends(view)
    if end:
        parts.append(f"{'deleted' if view.retained_disk else 'ends'} {when(end)} ({left(end, now)})")
    return " · ".join(parts)


def state(view: SessionView, now: datetime) -> str:
    """Name a session's state; one with only its disk left is neither running nor ending."""
    return session_state.words(view, now)


def price(view: SessionView) -> str:
    """Return the present price per hour: while the machine is stopped, that of its disk."""
    usd_h = session_state.now_usd_h(view)
    if view.instance is None or usd_h is None:
        return ""
    return f"{rate(usd_h)} for its disk" if view.disk is not None and view.grace is None else rate(usd_h)


def ends(view: SessionView) -> datetime | None:
    """Return when everything of the session is deleted, unless somebody acts."""
    return view.retained_disk.until if view.retained_disk else view.session.deadline


def _request_line(request: Request) -> str:
    title = safe(job_text.what_is_requested(request.kind, job_of(request.job), request.parent_id), 100)
    stands = f"{state_words(request.state)} · {person(request.requester)} · expires {when(request.expires_at)}"
    return f"{code(short_id(request.id))} {title} · {stands}"
