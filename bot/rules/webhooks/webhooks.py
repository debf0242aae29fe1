"""Judge webhooks: which events a consumer may receive, how a delivery is signed, and when it is retried."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import zlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState


class Topic(StrEnum):
    """Name what a webhook may subscribe to."""

    BUDGET = "budget"
    SESSION = "session"
    APPROVAL = "approval"
    ORPHAN = "orphan"
    INSTANCE = "instance"
    JOB = "job"


#: What each topic covers, for the documentation.
MEANING: Final[dict[Topic, str]] = {
    Topic.BUDGET: (
        "a budget reached a threshold, an administrator approved above one, or a session will cost more than approved"
    ),
    Topic.SESSION: "a session changed its state, was extended, or finished its work",
    Topic.APPROVAL: "a request was made, got its offers, a vote, or its decision",
    Topic.ORPHAN: "an orphan was found, condemned, or is gone",
    Topic.INSTANCE: "an instance is lost, has an unknown outcome, or did not stop or start",
    Topic.JOB: "a job succeeded, failed, or was interrupted",
}

#: A topic's name of before → the topic. Webhooks keep the names that they were created with, so this stays.
OLD_TOPICS: Final[dict[str, Topic]] = {"drift": Topic.INSTANCE}
#: Name of a message → what it was called before. Until 0.1.0 is released a message's `type` is the old name.
OLD_NAMES: Final[dict[str, str]] = {
    "spend.overspend": "spend.drift",
    "session.work_ended": "session.work_over",
    "session.continues": "session.goes_on",
    "instance.lost": "drift.lost",
    "instance.unknown_outcome": "drift.unclear",
    "instance.not_found": "drift.not_found",
    "instance.found_again": "drift.found_again",
    "instance.power_failed": "drift.not_switched",
}
_NEW_NAMES: Final = {old: name for name, old in OLD_NAMES.items()}
#: What a message calls its subject → what it was called before. Until 0.1.0 is released a message has both.
OLD_FIELDS: Final[dict[str, str]] = {"orphan": "stray"}

#: Kind of a journal row → its topic, and the name of the message; {after} is the state that was reached.
_EVENTS: Final[dict[str, tuple[Topic, str]]] = {
    EventKind.BUDGET_THRESHOLD: (Topic.BUDGET, "budget.threshold"),
    EventKind.BUDGET_OVERRIDDEN: (Topic.BUDGET, "budget.overridden"),
    EventKind.SESSION_MOVED: (Topic.SESSION, "session.{after}"),
    EventKind.SESSION_EXTENDED: (Topic.SESSION, "session.extended"),
    EventKind.SESSION_KEPT: (Topic.SESSION, "session.kept"),
    EventKind.SESSION_WORK_OVER: (Topic.SESSION, "session.work_ended"),
    EventKind.JOB_ENDED: (Topic.JOB, "job.{after}"),
    EventKind.SESSION_CUT: (Topic.SESSION, "session.ends_early"),
    EventKind.SESSION_UNCUT: (Topic.SESSION, "session.continues"),
    EventKind.CHECKPOINT_SAVING: (Topic.SESSION, "session.checkpoint_missing"),
    EventKind.CHECKPOINT_HELD: (Topic.SESSION, "session.checkpoint_held"),
    EventKind.CHECKPOINT_DESTROYED: (Topic.SESSION, "session.checkpoint_lost"),
    EventKind.CHECKPOINT_RESUMED: (Topic.SESSION, "session.resumed"),
    EventKind.MIGRATION_SUGGESTED: (Topic.SESSION, "session.cheaper_elsewhere"),
    EventKind.SPEND_OVER: (Topic.BUDGET, "spend.overspend"),
    EventKind.SPEND_PAUSED: (Topic.BUDGET, "spend.paused"),
    EventKind.SPEND_CONFIRMED: (Topic.BUDGET, "spend.confirmed"),
    EventKind.REQUEST_MADE: (Topic.APPROVAL, "request.made"),
    EventKind.REQUEST_MOVED: (Topic.APPROVAL, "request.{after}"),
    EventKind.REQUEST_VOTE: (Topic.APPROVAL, "request.vote"),
    EventKind.ORPHAN_SEEN: (Topic.ORPHAN, "orphan.seen"),
    EventKind.ORPHAN_MOVED: (Topic.ORPHAN, "orphan.{after}"),
    EventKind.INSTANCE_NOT_SWITCHED: (Topic.INSTANCE, "instance.power_failed"),
    EventKind.INSTANCE_HOST_KEY_CHANGED: (Topic.SESSION, "session.host_key_changed"),
    EventKind.INSTANCE_API_CERTIFICATE_CHANGED: (Topic.SESSION, "session.api_certificate_changed"),
    EventKind.INSTANCE_AGENT_TOKEN_REFUSED: (Topic.SESSION, "session.agent_token_refused"),
    EventKind.SPEND_SAVING: (Topic.BUDGET, "spend.saving"),
}
#: Moves of an instance that nobody ordered: the cloud's state was not the ledger's.
_UNORDERED_MOVES: Final[dict[tuple[str, str], str]] = {
    (InstanceState.LIVE, InstanceState.GONE): "instance.lost",
    (InstanceState.STOPPED, InstanceState.GONE): "instance.lost",
    (InstanceState.SENDING, InstanceState.UNKNOWN): "instance.unknown_outcome",
    (InstanceState.UNKNOWN, InstanceState.TOMBSTONE): "instance.not_found",
    (InstanceState.UNKNOWN, InstanceState.LIVE): "instance.found_again",
}
#: What these moves mean, for the documentation.
_MOVES_MEAN: Final[dict[str, str]] = {
    "instance.lost": "its cloud no longer has the instance",
    "instance.unknown_outcome": "the reply to a launch was lost",
    "instance.not_found": "a launch of unknown outcome led to no instance",
    "instance.found_again": "a launch of unknown outcome led to an instance, which was found",
}
#: Every name of a message with its topic and what it means; `{after}` is the state that was reached.
MESSAGES: Final[dict[str, tuple[Topic, str]]] = {
    **{name: (topic, EventKind(kind).label) for kind, (topic, name) in _EVENTS.items()},
    **{name: (Topic.INSTANCE, _MOVES_MEAN[name]) for name in _UNORDERED_MOVES.values()},
}
#: The journal kinds that anybody can receive.
KINDS: Final = frozenset({*_EVENTS, EventKind.INSTANCE_MOVED})

#: Seconds before each attempt after the first: ten attempts over about 75 hours.
PAUSES_S: Final = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
GONE: Final = 410
SECRET_BYTES: Final = 32
PREFIX: Final = "whsec_"


def topic_of_event(kind: str, before: str, after: str) -> tuple[Topic, str] | None:
    """Return topic and name of the message that a journal row makes; None for one that no webhook receives."""
    if kind == EventKind.INSTANCE_MOVED:
        name = _UNORDERED_MOVES.get((before, after))
        return None if name is None else (Topic.INSTANCE, name)
    found = _EVENTS.get(kind)
    return None if found is None else (found[0], found[1].format(after=after))


def kinds_of(topics: Iterable[str]) -> frozenset[str]:
    """Return the journal kinds of these topics, whose names may be of before."""
    wanted = topics_of(topics)
    kinds = {kind for kind, (topic, _) in _EVENTS.items() if topic in wanted}
    return frozenset(kinds | ({EventKind.INSTANCE_MOVED} if Topic.INSTANCE in wanted else set()))


def topics_of(names: Iterable[str]) -> frozenset[str]:
    """Return topics by the names that they have now."""
    return frozenset(OLD_TOPICS.get(name, name) for name in names)


def stored_topics(names: Iterable[str]) -> list[str]:
    """Return topics by all their names: the release before this one knows only the old ones, and may run beside it."""
    topics = topics_of(names)
    return sorted({*topics, *(old for old, topic in OLD_TOPICS.items() if topic in topics)})


def unknown_topics(said: Iterable[str]) -> list[str]:
    """Return the names that are no topic."""
    return sorted(topics_of(said) - set(Topic))


def sent_type(name: str) -> str:
    """Return the `type` with which a message of this name is sent. A consumer may listen for the name of before."""
    return OLD_NAMES.get(name, name)


def name_of_type(sent: str) -> str:
    """Return the name of a message that is sent with this `type`."""
    return _NEW_NAMES.get(sent, sent)


def pause_s(tries: int, name: str) -> float | None:
    """Return the seconds until the next attempt after `tries` failed ones; None after the last one.

    Up to a tenth more or less, by `name`, so that what failed together is not retried together.
    """
    if tries > len(PAUSES_S):
        return None
    spread = zlib.crc32(f"{name}/{tries}".encode()) / 2**32
    return PAUSES_S[tries - 1] * (0.9 + 0.2 * spread)


def delivered(status: int) -> bool:
    """Whether a status means that the message was taken."""
    return 200 <= status < 300


def secret_text(secret: bytes) -> str:
    """Encode a secret as its consumer keeps it."""
    return PREFIX + base64.b64encode(secret).decode()


def signature(secrets: Iterable[bytes], message_id: str, at_s: int, body: bytes) -> str:
    """Sign a delivery as Standard Webhooks' `webhook-signature` header: one signature for each valid secret."""
    content = f"{message_id}.{at_s}.".encode() + body
    made = (base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode() for secret in secrets)
    return " ".join(f"v1,{one}" for one in made)


def problems(networks: Iterable[str], ports: Iterable[int]) -> Iterator[str]:
    """Say what is wrong with a policy's own networks and ports: one sentence each."""
    for text in networks:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            yield f"webhook_networks: `{text}` is not a network, for example 127.0.0.0/8"
    if not all(0 < port < 65536 for port in ports):
        yield "webhook_ports needs ports, for example [443]"


def masked(url: str) -> str:
    """Return a webhook's URL for others than its holder: often its path is a secret that lets anybody post there."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}/…"
