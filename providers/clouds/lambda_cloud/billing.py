"""The bill, derived: Lambda has no billing call, but its audit log proves when an instance began and ended.

An event names the instance in its resources, and the type in its details. The words for *launched* and *terminated*
are in a catalogue that was not available, so each is recognised by its stem, and what neither means is passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from providers.adapter_helpers import instant, part, text
from providers.clouds.lambda_cloud.errors import CLOUD
from providers.contract import Charge
from providers.errors import UnexpectedResponse

INSTANCE = re.compile(r"lrn:[a-z_-]+:instance:([0-9A-Za-z_-]{1,64})", re.ASCII)
_BEGINS = ("launch", "creat", "provision", "start")
_ENDS = ("terminat", "delet", "destroy", "preempt")
#: Billing is in steps of one minute, and a step that has begun is paid.
MINUTE_S = 60
HOUR_S = Decimal(3600)


@dataclass(slots=True)
class InstanceSpan:
    """When one instance began and ended, as far as the log says, and its type."""

    ref: str
    began: datetime | None = None
    ended: datetime | None = None
    kind: str = ""


def spans(events: Iterable[Any]) -> dict[str, InstanceSpan]:
    """ref → span. Events may come in any order and more than once; the first begin and the first end count.

    Raises `UnexpectedResponse` for an event about an instance without a readable time.
    """
    found: dict[str, InstanceSpan] = {}
    for event in events:
        if not isinstance(event, dict):
            raise UnexpectedResponse(CLOUD, "Lambda sent an audit event that is not an object")
        action = str(event.get("action") or "").lower()
        begins, ends = (any(stem in action for stem in stems) for stems in (_BEGINS, _ENDS))
        refs = _refs(event)
        # One that reports an attempt (`launch_failed`, `terminate_denied`) began nothing and ended nothing.
        if not refs or begins == ends or any(word in action for word in ("fail", "reject", "denied")):
            continue
        at, kind = instant(event.get("event_time")), part(event, "additional_details").get("instance_type")
        if at is None:
            raise UnexpectedResponse(CLOUD, "Lambda sent an audit event without a readable time")
        for ref in refs:
            span = found.setdefault(ref, InstanceSpan(ref))
            span.kind = span.kind or text(kind) or ""
            if begins and (span.began is None or at < span.began):
                span.began = at
            if ends and (span.ended is None or at < span.ended):
                span.ended = at
    return found


def charges(
    found: Mapping[str, InstanceSpan], prices_usd_h: Mapping[str, Decimal], since: datetime, until: datetime
) -> tuple[Charge, ...]:
    """One line per instance that ran in [since, until), for its whole time until `until`.

    A line needs the launch, the type and that type's price; an instance of which the log lacks one has no line, and
    its cost stays what the ledger computed. Prices are those of today: Lambda keeps no history of them.
    """
    lines = []
    for span in found.values():
        price = prices_usd_h.get(span.kind)
        if span.began is None or price is None:
            continue
        end = min(span.ended or until, until)
        # Every begun minute is paid, and at least one.
        billed_s = max(math.ceil((end - span.began).total_seconds() / MINUTE_S), 1) * MINUTE_S
        if end < span.began or end <= since or span.began >= until:
            continue
        lines.append(
            Charge(
                cloud=CLOUD,
                line_id=f"{span.ref}/{span.began.isoformat()}",
                ref=span.ref,
                component="gpu",
                amount_usd=price * billed_s / HOUR_S,
                start=span.began,
                end=end,
            )
        )
    return tuple(lines)


def _refs(event: Mapping[str, Any]) -> set[str]:
    named = event.get("resource_lrns")
    texts = [*(named if isinstance(named, list) else ()), part(event, "additional_details").get("instance_lrn")]
    return {match[1] for text in texts if isinstance(text, str) and (match := INSTANCE.fullmatch(text))}
