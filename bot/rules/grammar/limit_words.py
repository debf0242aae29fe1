"""Read the words that narrow the market: reliability, memory in all, versions, availability, and sets of machines."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from bot.rules.grammar.bad_word import BadWord, show
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy


def read_reliability(text: str, _policy: Policy) -> dict[str, Any]:
    """Read `0.98` or `98%`."""
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)(%?)", text)
    share = Decimal(found[1]) / (100 if found[2] else 1) if found else Decimal(-1)
    if wrong := job_bounds.reliability(share, show(text)):
        raise BadWord(wrong.sentence)
    return {"min_reliability": share}


def read_total(text: str, _policy: Policy) -> dict[str, Any]:
    """Read `160`, `160GB`: the memory of all GPUs together, at least."""
    found = re.fullmatch(r"(\d{1,5})(?:gb|g)?\+?", text.lower().replace(" ", ""))
    if found is None or not int(found[1]):
        raise BadWord(f"{show(text)} is not a size; write total=160GB for all GPUs together.")
    return {"memory_gb_total_min": Decimal(found[1])}


def read_version(field: str, sample: str) -> Callable[[str, Policy], dict[str, Any]]:
    """Make a reader for a version such as 12.4; `sm_89` is 8.9."""

    def read(text: str, _policy: Policy) -> dict[str, Any]:
        short = re.fullmatch(r"sm_?(\d{1,2})(\d)", text.lower())
        plain = f"{short[1]}.{short[2]}" if short else text.removesuffix("+")
        if not re.fullmatch(r"\d{1,2}(?:\.\d{1,2})?", plain):
            raise BadWord(f"{show(text)} is not a version; write {sample}.")
        return {field: Decimal(plain)}

    return read


def read_available(text: str, _policy: Policy) -> dict[str, Any]:
    """Read `24h`, `3d`: for how long the cloud must expect the offer to be there."""
    bare = text.lower().replace(" ", "")
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,2})?)(days?|d|hours?|hrs?|h)?", bare)
    if found is None or not Decimal(found[1]):
        raise BadWord(f"{show(text)} is not a time; write available=24h or available=3d.")
    hours = Decimal(found[1]) * (24 if (found[2] or "h").startswith("d") else 1)
    return {"min_available_s": int(hours * 3600)}


def read_nodes(text: str, _policy: Policy) -> dict[str, Any]:
    """Read how many machines work as one set."""
    count = int(text) if re.fullmatch(r"\d{1,4}", text) else None
    if count is None:
        raise BadWord(f"{show(text)} is not a number of machines; write nodes=2.")
    if wrong := job_bounds.nodes(count):
        raise BadWord(wrong.sentence)
    return {"nodes": count}
