"""Build the answer to `/gpu list`: live sessions, and requests that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from bot.rules.sessions.expiration import left
from bot.rules.values.phrases import rate
from bot.rules.values.state_text import state_words
from bot.services.runtime import recovery_mode
from bot.services.sessions.service import Overview
from bot.slack.blocks import job as job_words
from bot.slack.blocks.elements import Block, Message, clip, code, context, dollars, person, safe, section, when
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
    blocks += requests(decidable, "Waiting for your approval")
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


def sessions(views: Sequence[SessionView], costs_usd: Mapping[str, Decimal], now: datetime) -> list[Block]:
    """Build the sections of live sessions."""
    lines = [_session_line(view, costs_usd, now) for view in views[:SHOWN]]
    return _chunks(":computer: *Sessions*", lines, len(views))


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
        f"{code(short_id(session.id))} {session.gpu_count}× {safe(session.gpu, 40) or 'GPU'}",
        state(view),
        person(session.owner),
    ]
    if row is not None:
        parts.insert(1, f"{safe(row.cloud, 30)} {price(view)}")
    if session.id in costs_usd:
        parts.append(f"{dollars(costs_usd[session.id])} so far")
    end = ends(view)
    if end:
        parts.append(f"{'deleted' if view.retained_disk else 'ends'} {when(end)} ({left(end, now)})")
    return " · ".join(parts)


def state(view: SessionView) -> str:
    """Name a session's state; one with only its disk left is neither running nor ending."""
    return "only its disk is left" if view.retained_disk else state_words(view.session.state)


def price(view: SessionView) -> str:
    """Return the present price per hour: while the machine is stopped, that of its disk."""
    if view.disk is not None:
        return f"{rate(view.disk.price_usd_h)} for its disk"
    return rate(view.instance.price_usd_h) if view.instance is not None else ""


def ends(view: SessionView) -> datetime | None:
    """Return when everything of the session is deleted, unless somebody acts."""
    return view.retained_disk.until if view.retained_disk else view.session.deadline


def _request_line(request: Request) -> str:
    job = request.job
    kind = "more time for " if request.parent_id else ""
    title = safe(job_words.title(job), 100)
    expires = f"expires {when(request.expires_at)}"
    return f"{code(short_id(request.id))} {kind}{title} · {request.state} · {person(request.requester)} · {expires}"
