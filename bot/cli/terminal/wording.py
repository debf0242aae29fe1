"""Word a service's sentence for a terminal: commands of this program instead of Slack's, and times of this zone.

The services write one sentence for every surface. In it a command is Slack's (`/gpu list`) and a time is in UTC.
`--json` prints the sentence as it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo

from bot.clock import SystemClock

#: Slack's command → the command of this program, where the two differ. Two words come before one.
HERE: Mapping[str, str] = {
    "list": "sessions",
    "status": "session",
    "terminate": "shutdown",
    "budget": "budget show",
    "costs summary": "ledger summary",
    "key add": "ssh-key add",
    "key list": "ssh-key list",
    "key remove": "ssh-key remove",
    "key": "ssh-key",
    "profile": "profiles show",
    "help": "--help",
}
_SLACK = re.compile(r"(?<![\w/])/gpu (?P<one>[a-z][a-z-]*)(?P<two> [a-z]+)?")
_UTC = re.compile(r"\b(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)(?::\d\d)? UTC\b")


def for_terminal(sentence: str) -> str:
    """Return a sentence with the commands of this program and the times of this zone."""
    return _UTC.sub(_local, _SLACK.sub(_here, sentence))


def _here(found: re.Match[str]) -> str:
    one, two = found["one"], found["two"] or ""
    known = HERE.get(one + two)
    return f"gpu-shopper {known}" if known else f"gpu-shopper {HERE.get(one, one)}{two}"


def _local(found: re.Match[str]) -> str:
    return when(datetime.fromisoformat(f"{found[1]}T{found[2]}").replace(tzinfo=UTC))


def when(at: datetime | None) -> str:
    """Write a moment as people say it, in this machine's zone."""
    return moment(at, SystemClock().now()) if at else "-"


def moment(at: datetime, now: datetime, zone: tzinfo | None = None) -> str:
    """Write `at` in `zone` (this machine's without one): `3:45 PM`, `tomorrow 3:45 PM`, `Nov 24, 3:45 PM`."""
    local, today = at.astimezone(zone), now.astimezone(zone).date()
    clock = f"{local.hour % 12 or 12}:{local:%M} {'AM' if local.hour < 12 else 'PM'}"  # Noon.
    days = (local.date() - today).days
    if days in (-1, 0, 1):
        return f"{('yesterday ', '', 'tomorrow ')[days + 1]}{clock}"
    year = f" {local.year}" if local.year != today.year else ""
    return f"{local:%b} {local.day}{year}, {clock}"


def exact(at: datetime | None) -> str:
    """Write a moment for a program that reads a table: ISO 8601 to the second, with this zone's offset."""
    return at.astimezone().isoformat(timespec="seconds") if at else ""
