"""Chain the journal: each event of a subject has a hash over itself and the hash before it.

A person who changes, removes or inserts an event afterwards breaks every later hash; anybody who noted a head can prove
it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

#: What the first event of a subject follows.
START = ""


def event_hash(before: str, event: Mapping[str, Any]) -> str:
    """Return the hash of an event after the hash `before`: 64 hexadecimal digits. Equal content has equal text here."""
    text = json.dumps([before, event], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def first_broken(chain: Iterable[tuple[Mapping[str, Any], str]]) -> int | None:
    """Return the number (from 1) of the first event whose hash does not fit; None while the chain is whole."""
    before = START
    for number, (event, stored) in enumerate(chain, 1):
        if event_hash(before, event) != stored:
            return number
        before = stored
    return None
