"""Webhooks: which events of the journal a consumer may hear, how a message is signed, and when it is tried again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import zlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final


class Topic(StrEnum):
    """What somebody may ask to hear."""

    BUDGET = "budget"
    SESSION = "session"
    APPROVAL = "approval"
    ORPHAN = "orphan"
    DRIFT = "drift"


#: What each topic tells, for the documentation.
MEANING: Final[dict[Topic, str]] = {
    Topic.BUDGET: (
        "a budget reached a threshold, an administrator approved above one, or a session will cost more than approved"
    ),
    Topic.SESSION: "a session changed its state, was extended, or its work is over",
    Topic.APPROVAL: "a request was made, got its offers, a vote, or its decision",
    Topic.ORPHAN: "an instance of ours without a row of its own was seen, condemned, or is gone",
    Topic.DRIFT: "an instance is not as the ledger has it: lost, of unclear outcome, not switched",
}

#: Kind of a journal row → its topic, and the name of the message; {after} is the state that was reached.
_HEARD: Final[dict[str, tuple[Topic, str]]] = {
    "budget.threshold": (Topic.BUDGET, "budget.threshold"),
    "budget.overridden": (Topic.BUDGET, "budget.overridden"),
    "session.moved": (Topic.SESSION, "session.{after}"),
    "session.extended": (Topic.SESSION, "session.extended"),
    "session.kept": (Topic.SESSION, "session.kept"),
    "session.work_over": (Topic.SESSION, "session.work_over"),
    "session.cut": (Topic.SESSION, "session.ends_early"),
    "session.uncut": (Topic.SESSION, "session.goes_on"),
    "checkpoint.saving": (Topic.SESSION, "session.checkpoint_missing"),
    "checkpoint.held": (Topic.SESSION, "session.checkpoint_held"),
    "checkpoint.destroyed": (Topic.SESSION, "session.checkpoint_lost"),
    "spend.drift": (Topic.BUDGET, "spend.drift"),
    "spend.paused": (Topic.BUDGET, "spend.paused"),
    "spend.confirmed": (Topic.BUDGET, "spend.confirmed"),
    "request.made": (Topic.APPROVAL, "request.made"),
    "request.moved": (Topic.APPROVAL, "request.{after}"),
    "request.vote": (Topic.APPROVAL, "request.vote"),
    "stray.seen": (Topic.ORPHAN, "orphan.seen"),
    "stray.moved": (Topic.ORPHAN, "orphan.{after}"),
    "instance.not_switched": (Topic.DRIFT, "drift.not_switched"),
    "instance.host_key_changed": (Topic.SESSION, "session.host_key_changed"),
    "instance.api_certificate_changed": (Topic.SESSION, "session.api_certificate_changed"),
    "spend.saving": (Topic.BUDGET, "spend.saving"),
}
#: Moves of an instance that nobody ordered: what the cloud says is not what the ledger said.
_DRIFTS: Final[dict[tuple[str, str], str]] = {
    ("live", "gone"): "drift.lost",
    ("stopped", "gone"): "drift.lost",
    ("sending", "unknown"): "drift.unclear",
    ("unknown", "tombstone"): "drift.not_found",
    ("unknown", "live"): "drift.found_again",
}
_MOVED: Final = "instance.moved"
#: The journal kinds that anybody can hear of.
KINDS: Final = frozenset({*_HEARD, _MOVED})

#: Seconds before each attempt after the first: ten attempts over about 75 hours.
PAUSES_S: Final = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
GONE: Final = 410
SECRET_BYTES: Final = 32
PREFIX: Final = "whsec_"


def heard(kind: str, before: str, after: str) -> tuple[Topic, str] | None:
    """Topic and name of the message that a journal row makes; None for one that nobody hears of."""
    if kind == _MOVED:
        name = _DRIFTS.get((before, after))
        return None if name is None else (Topic.DRIFT, name)
    found = _HEARD.get(kind)
    return None if found is None else (found[0], found[1].format(after=after))


def kinds_of(topics: Iterable[str]) -> frozenset[str]:
    """The journal kinds of these topics."""
    wanted = set(topics)
    kinds = {kind for kind, (topic, _) in _HEARD.items() if topic in wanted}
    return frozenset(kinds | ({_MOVED} if Topic.DRIFT in wanted else set()))


def unknown_topics(said: Iterable[str]) -> list[str]:
    """Names that are no topic."""
    return [name for name in said if name not in set(Topic)]


def pause_s(tries: int, name: str) -> float | None:
    """Seconds until the next attempt after `tries` failed ones; None when there is none any more.

    Up to a tenth more or less, by `name`, so that what failed together does not come back together.
    """
    if tries > len(PAUSES_S):
        return None
    spread = zlib.crc32(f"{name}/{tries}".encode()) / 2**32
    return PAUSES_S[tries - 1] * (0.9 + 0.2 * spread)


def delivered(status: int) -> bool:
    """Whether an answer says that the message was taken."""
    return 200 <= status < 300


def secret_text(secret: bytes) -> str:
    """A secret as its consumer keeps it."""
    return PREFIX + base64.b64encode(secret).decode()


def signature(secrets: Iterable[bytes], message_id: str, at_s: int, body: bytes) -> str:
    """The `webhook-signature` header of Standard Webhooks: one signature for each secret that is valid now."""
    content = f"{message_id}.{at_s}.".encode() + body
    made = (base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode() for secret in secrets)
    return " ".join(f"v1,{one}" for one in made)


def problems(networks: Iterable[str], ports: Iterable[int]) -> Iterator[str]:
    """What is wrong with a policy's own networks and ports: one sentence each."""
    for text in networks:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            yield f"webhook_networks: `{text}` is not a network, for example 127.0.0.0/8"
    if not all(0 < port < 65536 for port in ports):
        yield "webhook_ports needs ports, for example [443]"
