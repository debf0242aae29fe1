"""Build the digest: a day or a week in ten lines and a chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import Final

from bot.rules.budgets.budget import Period
from bot.rules.jobs.job_text import machine
from bot.rules.values.phrases import at_rate, plural, rate
from bot.rules.values.state_text import words_of
from bot.services.reports.digest_types import DigestDocument, RunningSession
from bot.slack.blocks.elements import Message, clip, code, context, dollars, header, person, safe, section
from bot.slack.blocks.money import spend_chart
from bot.slack.blocks.private_answer import mentioned
from ledger.kernel.end_reason import END_LABELS
from ledger.kernel.ids import short_id
from ledger.kernel.states import OrphanState

#: The most names in one line, and the most lines of the message with its last one, which says where more is.
NAMES: Final = 3
LINES: Final = 10
_TITLES: Final = {"owner": "By owner", "cloud": "By cloud", "gpu": "By GPU"}


def digest(found: DigestDocument, command: str) -> Message:
    """Build the message; `command` is the slash command that shows more."""
    title = f"GPU costs {_time(found)}"
    # What needs somebody comes before the shares, which are left out first where there is too much for ten lines.
    lines = [*_money(found), *_attention(found), *_machines(found), *_shares(found)][: LINES - 1]
    bars = [(datetime.combine(day, time()), amount) for day, amount in found.days]
    days = "Days are those of UTC." if found.zone == "UTC" else f"Days are those of {safe(found.zone, 40)}."
    blocks = [header(title), section("\n".join(lines)), *spend_chart("Dollars per day", bars, Period.DAILY)]
    blocks.append(context(f"{days} More: {code(f'{command} costs')}, {code(f'{command} list team')}."))
    return Message(clip(f"{title}: {' '.join(lines)}", 3_900), tuple(blocks))


def _time(found: DigestDocument) -> str:
    if found.weekly:
        return f"of the week {_day(found.first)} to {_day(found.last)}"
    return f"of {found.last:%A}, {_day(found.last)}"


def _day(day: date) -> str:
    return f"{day.day} {day:%B}"


def _money(found: DigestDocument) -> Iterator[str]:
    before = "the week before" if found.weekly else "the day before"
    yield f":money_with_wings: *{dollars(found.spent_usd)}* spent ({before}: {dollars(found.before_usd)})."
    heading = f", heading for {dollars(found.forecast_usd)}" if found.forecast_usd is not None else ""
    yield f":calendar: *{found.last:%B} so far: {dollars(found.month_usd)}*{heading}."
    if found.budgets:
        yield f":bank: {_joined((safe(one, 120) for one in found.budgets), len(found.budgets), '; ')}"


def _attention(found: DigestDocument) -> Iterator[str]:
    if found.broken_glass:
        each = (mentioned(safe(one, 200)) for one in found.broken_glass)
        yield f":rotating_light: *Started without an approval*: {_joined(each, len(found.broken_glass), '; ')}"
    if found.orphans_in_all:
        each = (
            f"{code(short_id(one.id))} at {safe(one.cloud, 30)} {rate(one.price_usd_h)}, "
            f"{safe(words_of(OrphanState, one.state), 20)}"
            for one in found.orphans
        )
        yield f":ghost: *Orphans found* ({found.orphans_in_all}): {_joined(each, found.orphans_in_all, '; ')}"
    if found.reservations:
        each = (safe(one, 300) for one in found.reservations)
        yield f":bulb: *Reserved GPUs would be cheaper*: {_joined(each, len(found.reservations), ' ')}"
    if found.graces:
        each = (safe(one, 200) for one in found.graces)
        yield f":hourglass: *In grace: they stopped working and stay*: {_joined(each, len(found.graces), '; ')}"
    if found.anomalies:
        each = (mentioned(safe(one, 120)) for one in found.anomalies)
        yield f":warning: *Unusual*: {_joined(each, len(found.anomalies), '; ')}"


def _machines(found: DigestDocument) -> Iterator[str]:
    disks = f" {plural(found.disks_in_all, 'retained disk')}." if found.disks_in_all else ""
    if found.running_in_all:
        each = (f"{_what(one)} of {person(one.owner)}" for one in found.running)
        lead = f"{plural(found.running_in_all, 'session')} {at_rate(found.running_usd_h)}"
        yield f":computer: *Running now*: {lead}: {_joined(each, found.running_in_all, '; ')}.{disks}"
    else:
        yield f":zzz: *Nothing is running.*{disks}"
    count = sum(found.ended_by.values())
    saved = f" Saved by early ends and stops: {dollars(found.saved_usd)}." if found.saved_usd > 0 else ""
    if count:
        why = _joined((f"{_why(name)} ×{number}" for name, number in found.ended_by.items()), len(found.ended_by))
        yield f":checkered_flag: *Ended*: {plural(count, 'session')} ({why}).{saved}"
    elif saved:
        yield f":moneybag:{saved}"
    if found.unreconciled:
        each = (safe(one, 120) for one in found.unreconciled)
        yield f":mag: *Not confirmed by the cloud's bill*: {_joined(each, len(found.unreconciled), '; ')}"


def _shares(found: DigestDocument) -> Iterator[str]:
    for by, title in _TITLES.items():
        if rows := found.groups.get(by, ()):
            rest = sum((amount for _, amount in rows[NAMES:]), Decimal(0))
            each = [f"{_name(by, name)} {dollars(amount)}" for name, amount in rows[:NAMES]]
            yield f"*{title}*: {', '.join(each + ([f'others {dollars(rest)}'] if rest else []))}"


def _name(by: str, name: str) -> str:
    return person(name) if by == "owner" and ":" in name else safe(name, 40) or "none"


def _why(name: str) -> str:
    return END_LABELS.get(name, safe(name.replace("_", " "), 40) or "other")


def _what(one: RunningSession) -> str:
    return f"{code(short_id(one.request_id))} {safe(machine(1, one.gpu_count, one.gpu), 60)}"


def _joined(each: Iterable[str], count: int, separator: str = ", ") -> str:
    """Write the first names in one line, and the number of the rest."""
    shown = list(islice(each, NAMES))
    return separator.join([*shown, f"{count - len(shown)} more"] if count > len(shown) else shown)
