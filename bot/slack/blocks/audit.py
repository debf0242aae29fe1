"""Build the answer to `/gpu audit ID`: the last events, and whether the hash chain is intact."""

from __future__ import annotations

from bot.rules.audit.event_text import LATE, happened, whole
from bot.services.audit.journal import Audit
from bot.slack.blocks.elements import Message, clip, code, context, person, safe, section, when
from ledger.kernel.ids import short_id
from ledger.models import Event

SHOWN = 12


def audit(found: Audit) -> Message:
    """Show the newest events first."""
    newest = list(reversed(found.events))[:SHOWN]
    lines = [_line(event, is_late=event.id in found.late) for event in newest]
    more = len(found.events) - len(newest)
    lines += [f"… and {more} earlier ones"] if more > 0 else []
    state = whole(len(found.events), found.hashed)
    if found.broken:
        state = f":rotating_light: The journal was changed: {safe('; '.join(found.broken), 600)}."
    export = f"All of it: {code(f'gpu-shopper audit {short_id(found.request_id)} --jsonl')}."
    title = f":scroll: *Journal* of {code(short_id(found.request_id))} · {state}"
    blocks = [section(title), *(section("\n".join(lines[at : at + 6])) for at in range(0, len(lines), 6))]
    return Message(clip(" ".join([title, *lines]), 3_900), (*blocks, context(export)))


def _line(event: Event, *, is_late: bool) -> str:
    late = f" · *{LATE}*" if is_late else ""
    why = f": {safe(event.reason, 160)}" if event.reason else ""
    what = safe(happened(event.kind, event.before, event.after), 100)
    return f"{when(event.at)}{late} · {what} · {person(event.actor)}{why}"
