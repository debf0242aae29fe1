"""Build the digest: a day or a week in one message that a channel reads in a minute."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Final

from bot.rules.budgets.budget import Period
from bot.rules.values.phrases import plural, rate
from bot.services.reports.digest_types import DigestDocument, Ended, RunningSession, Shares
from bot.slack.blocks.elements import (
    TEXT_MAX,
    Block,
    Message,
    clip,
    code,
    context,
    dollars,
    header,
    person,
    safe,
    section,
    when,
)
from bot.slack.blocks.money import spend_chart
from bot.slack.blocks.private_answer import mentioned
from ledger.kernel.end_reason import END_LABELS
from ledger.kernel.ids import short_id

#: The most values of one group, and the most sessions of one list.
VALUES: Final = 5
LINES: Final = 8
_ORPHAN: Final = ":ghost:"
_TITLES: Final = {"cloud": "By cloud", "owner": "By owner", "gpu": "By GPU"}


def digest(found: DigestDocument, command: str) -> Message:
    """Build the message; `command` is the slash command that shows more."""
    title = f"GPU costs {_time(found)}"
    lead = _lead(found)
    blocks = [header(title), section(lead)]
    if found.anomalies:
        blocks.append(section(":warning: *Unusual*\n" + "\n".join(safe(one, 200) for one in found.anomalies[:VALUES])))
    if len(found.days) > 1:
        bars = [(datetime.combine(day, time()), amount) for day, amount in found.days]
        blocks.append(spend_chart("Dollars per day", bars, Period.DAILY))
    shares = [_shares(by, found) for by in _TITLES]
    blocks += [_fields(lines)] if (lines := [one for one in shares if one]) else []
    blocks += [*_running(found), *_ended(found), *_notes(found)]
    days = "Days are those of UTC." if found.zone == "UTC" else f"Days are those of {safe(found.zone, 40)}."
    blocks.append(context(f"{days} {code(f'{command} costs')} shows more."))
    return Message(clip(f"{title}: {lead}", 3_900), tuple(blocks))


def _time(found: DigestDocument) -> str:
    if found.weekly:
        return f"of the week {_day(found.first)} to {_day(found.last)}"
    return f"of {found.last:%A}, {_day(found.last)}"


def _day(day: date) -> str:
    return f"{day.day} {day:%B}"


def _lead(found: DigestDocument) -> str:
    before = "the week before" if found.weekly else "the day before"
    parts = [f"*{dollars(found.spent_usd)}* spent ({before}: {dollars(found.before_usd)})."]
    parts.append(f"*{found.last:%B} so far: {dollars(found.month_usd)}*, heading for {dollars(found.forecast_usd)}.")
    lines = [f":money_with_wings: {' '.join(parts)}"]
    return "\n".join([*lines, *(f":bank: {safe(one, 200)}" for one in found.budgets[:VALUES])])


def _shares(by: str, found: DigestDocument) -> str:
    month = dict(found.month.get(by, ()))
    rows: Shares = found.groups.get(by, ())
    if not rows:
        return ""
    lines = [_share(by, name, amount, month.get(name)) for name, amount in rows[:VALUES]]
    rest = sum((amount for _, amount in rows[VALUES:]), Decimal(0))
    more = [f"others {dollars(rest)}"] if rest else []
    return "\n".join([f"*{_TITLES[by]}*", *lines, *more])


def _share(by: str, name: str, amount: Decimal, month: Decimal | None) -> str:
    shown = person(name) if by == "owner" and ":" in name else safe(name, 40) or "none"
    return f"{shown} {dollars(amount)}" + (f" (month {dollars(month)})" if month is not None else "")


def _fields(texts: Iterable[str]) -> Block:
    return {"type": "section", "fields": [{"type": "mrkdwn", "text": clip(text, 1_900)} for text in texts]}


def _running(found: DigestDocument) -> list[Block]:
    if not found.running_in_all:
        return [section(":zzz: *Nothing is running.*")]
    lead = f":computer: *Running now*: {plural(found.running_in_all, 'session')} at {rate(found.running_usd_h)}"
    return [section(_list(lead, map(_running_line, found.running[:LINES]), found.running_in_all))]


def _running_line(one: RunningSession) -> str:
    until = f"until {when(one.deadline)}" if one.deadline else str(one.state)
    if one.deadline and one.state == "stopped":
        until = f"stopped, {until}"
    at = f" at {safe(one.cloud, 30)}" if one.cloud else ""
    return f"{_what(one)}{at} · {person(one.owner)} · {until}"


def _ended(found: DigestDocument) -> list[Block]:
    count = sum(found.ended_by.values())
    if not count:
        return []
    why = ", ".join(f"{number} {_why(name)}" for name, number in list(found.ended_by.items())[:LINES])
    lead = f":checkered_flag: *Ended*: {plural(count, 'session')} ({why})"
    return [section(_list(lead, map(_ended_line, found.ended[:LINES]), count))]


def _why(name: str) -> str:
    return END_LABELS.get(name, safe(name.replace("_", " "), 40) or "other")


def _ended_line(one: Ended) -> str:
    why = safe(one.reason, 140) or "no reason is known"
    return f"{_what(one)} · {person(one.owner)} · {dollars(one.cost_usd)} · {why}"


def _what(one: RunningSession | Ended) -> str:
    return f"{code(short_id(one.id))} {one.gpu_count}× {safe(one.gpu, 40) or 'GPU'}"


def _list(lead: str, lines: Iterable[str], count: int) -> str:
    """List as many whole lines as fit, and the number of the rest."""
    shown, room = [lead], TEXT_MAX - len(lead) - 40
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    more = [f"… and {count - len(shown) + 1} more"] if count > len(shown) - 1 else []
    return "\n".join([*shown, *more])


def _notes(found: DigestDocument) -> list[Block]:
    parts = []
    if found.saved_usd > 0:
        stood = f", {plural(found.stopped_in_all, 'machine')} stood still" if found.stopped_in_all else ""
        parts.append(f":moneybag: *Saved* by ending early and by stops: {dollars(found.saved_usd)}{stood}.")
    if found.disks_in_all:
        each = ", ".join(
            f"{code(short_id(one.id))} at {safe(one.cloud, 40)} for {rate(one.price_usd_h)} until {when(one.until)}"
            for one in found.disks[:VALUES]
        )
        parts.append(f":floppy_disk: *Disks kept* ({found.disks_in_all}): {each}")
    if found.orphans_in_all:
        each = ", ".join(
            f"{code(short_id(one.id))} at {safe(one.cloud, 30)} {rate(one.price_usd_h)}, {safe(one.state, 20)}"
            for one in found.orphans[:VALUES]
        )
        parts.append(f"{_ORPHAN} *Orphans found* ({found.orphans_in_all}): {each}")
    if found.broken_glass:
        each = "\n".join(mentioned(safe(one, 300)) for one in found.broken_glass[:VALUES])
        parts.append(f":rotating_light: *Started without an approval*\n{each}")
    if found.unreconciled:
        each = "\n".join(safe(one, 200) for one in found.unreconciled[:VALUES])
        parts.append(f":mag: *Not confirmed by the cloud's bill*\n{each}")
    return [section("\n".join(parts))] if parts else []
