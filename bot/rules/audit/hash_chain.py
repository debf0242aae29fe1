"""The journal as a chain: each event of a subject is sealed with a hash over itself and the seal before it.

Whoever changes, removes or inserts an event afterwards breaks every later seal; whoever noted a head can tell.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

#: What the first event of a subject follows.
START = ""


def event_hash(before: str, event: Mapping[str, Any]) -> str:
    """The seal of an event after the seal `before`: 64 hexadecimal digits. Equal content has equal text here."""
    text = json.dumps([before, event], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def first_broken(chain: Iterable[tuple[Mapping[str, Any], str]]) -> int | None:
    """The number (from 1) of the first event whose seal does not fit; None while the chain is whole."""
    before = START
    for number, (event, sealed) in enumerate(chain, 1):
        if event_hash(before, event) != sealed:
            return number
        before = sealed
    return None
