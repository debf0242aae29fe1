"""Read and check other tools' costs: `{"skill", "provider", "action", "amount_usd", "timestamp", "notes"}`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from bot.rules.values.phrases import usd
from bot.rules.values.text import clean
from ledger.kernel import money

#: What our own entries begin with: they are never taken for another tool's.
OWN = "gpu-shopper/"
SKILL = "gpu-shopper"
_NAME_MAX = 48
_ACTION_MAX = 96
_NOTES_MAX = 2_000
#: No amount of dollars has more digits; whether it is plausible is the policy's matter.
_DIGITS = 12
#: Clocks of other machines may be ahead a little.
_AHEAD = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class External:
    """Hold one cost of another tool. `key` is the same for the same cost, whether by file, API or command."""

    key: str
    skill: str
    provider: str
    action: str
    amount_usd: Decimal
    at: datetime
    notes: str


def is_own(entry: object) -> bool:
    """Whether an entry of a shared file is one that we wrote."""
    return isinstance(entry, Mapping) and (
        str(entry.get("id", "")).startswith(OWN) or str(entry.get("skill", "")).strip().lower() == SKILL
    )


def read(entry: object, now: datetime, most_usd: Decimal) -> External | str:
    """Read a cost or refund of at most `most_usd` from an entry, or say in one sentence what is wrong with it."""
    if not isinstance(entry, Mapping):
        return "An entry is an object with skill, provider, action, amount_usd, timestamp and notes."
    names = {name: _text(entry.get(name), most) for name, most in _TEXTS.items()}
    for name in ("skill", "provider", "action"):
        if not names[name]:
            return f"{name} is missing; write what it is, at most {_TEXTS[name]} characters."
    if is_own(entry):
        return "gpu-shopper writes its own entries; other tools have other names."
    amount = _amount(entry.get("amount_usd"))
    if amount is None:
        return "amount_usd is an amount in dollars other than 0, such as 1.25, or less than 0 for a refund."
    if abs(amount) > most_usd:
        return f"amount_usd is above {usd(most_usd)}, the most for one entry (external_entry_usd in the policy)."
    at = _time(entry.get("timestamp"))
    if at is None:
        return "timestamp is a time with its zone, such as 2026-03-02T09:00:00Z."
    if at > now + _AHEAD:
        return "timestamp lies in the future."
    return External(key_of(entry), **names, amount_usd=amount, at=at)


def unmatched(refund: External, booked_usd: Decimal) -> str:
    """Say why a refund is refused: it exceeds what the same caller booked for the tool; empty if it does not."""
    if refund.amount_usd >= 0 or booked_usd + refund.amount_usd >= 0:
        return ""
    return (
        f"A refund gives back what was booked before by the same caller: of {refund.skill} {usd(booked_usd)} is left, "
        f"and this is {usd(-refund.amount_usd)}."
    )


_TEXTS = {"skill": _NAME_MAX, "provider": _NAME_MAX, "action": _ACTION_MAX, "notes": _NOTES_MAX}


def _text(value: Any, most: int) -> str:
    return clean(value)[:most] if isinstance(value, str) else ""


def _amount(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    usable = amount.is_finite() and amount.adjusted() < _DIGITS
    rounded = money.amount_even(amount) if usable else Decimal(0)
    return rounded or None


def _time(value: Any) -> datetime | None:
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return at.astimezone(UTC) if at.tzinfo is not None else None
    except (ValueError, OverflowError):  # The first and the last possible day are out of range in other zones.
        return None


def key_of(entry: Mapping[str, Any]) -> str:
    """Make a key of the tool's own id where it gives one, and else of everything that it says."""
    skill, own_id = _text(entry.get("skill"), _NAME_MAX), str(entry.get("id") or "").strip()[:200]
    said = [skill, own_id] if own_id else [str(entry.get(name, "")) for name in (*_TEXTS, "amount_usd", "timestamp")]
    return hashlib.sha256(json.dumps(said, ensure_ascii=True).encode()).hexdigest()


def exported_id(key: str) -> str:
    """Return the id under which we export a cost of another tool. It counts as our entry, so nobody imports it."""
    return f"{OWN}external/{key}"
