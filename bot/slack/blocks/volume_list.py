"""Show network volumes: their size, place, price, cost and end."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from bot.rules.jobs.stored import job_of
from bot.rules.values.phrases import rate
from bot.rules.values.state_text import state_words
from bot.services.sessions.volume_lookup import trouble
from bot.slack.blocks.elements import Message, clip, code, context, dollars, person, safe, section, when
from ledger.kernel.volume_name import volume_of
from ledger.queries.views import SessionView
from providers.cloud_names import cloud_title


def listing(found: Sequence[tuple[SessionView, Decimal]], command: str) -> Message:
    """List volumes with what each has cost so far, the soonest to end first."""
    if not found:
        make = code(f"{command} volume create data 200GB for=14d")
        return Message.of(f"You have no network volumes. To ask for one: {make}")
    lines = [_line(view, cost_usd) for view, cost_usd in found]
    hint = f"{code('volume=NAME')} in a request mounts one. {code(f'{command} volume extend NAME 7d')} keeps it longer."
    lead = ":floppy_disk: *Your network volumes*"
    return Message(clip("; ".join(lines), 3_900), (section("\n".join([lead, *lines])), context(hint)))


def _line(view: SessionView, cost_usd: Decimal) -> str:
    session, row = view.session, view.instance
    parts = [f"{code(session.short_id)} *{safe(volume_of(session.gpu), 40)}* {job_of(view.request.job).disk_gb:,} GB"]
    if row is not None:
        parts.append(
            f"{safe(cloud_title(row.cloud), 30)} {safe(str(row.offer.get('region', '')), 40)} {rate(row.price_usd_h)}"
        )
    parts += [state_words(session.state), person(session.owner), f"{dollars(cost_usd)} so far"]
    parts += [f"deleted {when(session.deadline)}"] if session.deadline is not None else []
    parts += [f":warning: {said}"] if (said := trouble(view)) else []
    return " · ".join(parts)
