"""Define what an API key may do: its scopes, who may be given which, and how keys and names look."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import Actor, ActorKind


class Scope(StrEnum):
    """Name one thing that a key may do. An answer names the scope that a key lacks."""

    MARKET_READ = "market:read"
    REQUESTS_READ = "requests:read"
    REQUESTS_WRITE = "requests:write"
    SESSIONS_READ = "sessions:read"
    SESSIONS_WRITE = "sessions:write"
    WEBHOOKS_WRITE = "webhooks:write"
    METRICS_READ = "metrics:read"
    LEDGER_WRITE = "ledger:write"
    APPROVALS_WRITE = "approvals:write"
    ADMIN = "admin"


#: What each scope allows, for the documentation.
MEANING: dict[Scope, str] = {
    Scope.MARKET_READ: "inventory, plans, comparisons and profiles",
    Scope.REQUESTS_READ: "see requests",
    Scope.REQUESTS_WRITE: "request GPUs, and cancel these requests",
    Scope.SESSIONS_READ: "see sessions and how to connect",
    Scope.SESSIONS_WRITE: "extend, stop, start, restart and end a session",
    Scope.WEBHOOKS_WRITE: "create webhooks for one's own requests and sessions",
    Scope.METRICS_READ: "read /metrics, with figures of everybody; only if you name this scope",
    Scope.LEDGER_WRITE: "append costs of other tools, which count against budgets; only if you name this scope",
    Scope.APPROVALS_WRITE: "approve, reject and start without an approval; only for the key of a person",
    Scope.ADMIN: "see everything, make and revoke keys of programs; only for the key of a person",
}
#: Decisions belong to people, so a program's key never has these.
FOR_PEOPLE = frozenset({Scope.APPROVALS_WRITE, Scope.ADMIN})
#: They reach beyond one's own things, so a key has them only when somebody asks for them.
ON_REQUEST = frozenset({Scope.METRICS_READ, Scope.LEDGER_WRITE})
PLAIN = tuple(scope for scope in Scope if scope not in FOR_PEOPLE | ON_REQUEST)
KEY_DAYS, MOST_KEY_DAYS = 90, 366
#: A new key beside the old one, so that a rotation needs no moment without a key.
ACTIVE_KEYS = 2

KEY_ID_LENGTH = 12
TOKEN = re.compile(rf"gpuk_([0-9a-hjkmnp-tv-z]{{{KEY_ID_LENGTH}}})_([A-Za-z0-9_-]{{43}})", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9._-]{1,39}", re.ASCII)


class BadHolder(ValueError):
    """Refuse a holder, an owner or a scope that a key cannot have; `code` is stable, the message is for people."""

    def __init__(self, code: ReplyCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True)
class Holder:
    """Name whose key it is: the actor that it acts as, and the person who answers for that."""

    actor: Actor
    owner: Actor

    @property
    def is_person(self) -> bool:
        """Whether the key acts as a person and not as a program."""
        return self.actor.kind is ActorKind.OPERATOR


def holder(name: str, owner: str) -> Holder:
    """Read a holder: `atlas` or `agent:coder` with the person who answers for it, or `operator:ada` for herself.

    Raises `BadHolder`.
    """
    kind, colon, bare = name.partition(":")
    if not colon:
        kind, bare = ActorKind.CONSUMER, name
    if kind not in (ActorKind.CONSUMER, ActorKind.AGENT, ActorKind.OPERATOR) or not _NAME.fullmatch(bare):
        raise BadHolder(
            ReplyCode.BAD_CONSUMER,
            "A key belongs to a program such as atlas, an AI agent as agent:coder, or a person as operator:ada. "
            "A name has 2 to 40 lower-case letters, digits, dots, hyphens and underscores.",
        )
    actor = Actor(ActorKind(kind), bare)
    if actor.kind is ActorKind.OPERATOR:
        if owner and owner != actor.ref:
            raise BadHolder(ReplyCode.BAD_OWNER, f"The key of {actor.ref} needs no owner. Leave the owner out.")
        return Holder(actor, actor)
    return Holder(actor, person(owner))


def person(text: str) -> Actor:
    """Read the person who answers for a program: `operator:ada`, a Slack id, or `slack:T…/U…`."""
    if re.fullmatch(r"[UW][A-Z0-9]{2,}", text):
        return Actor(ActorKind.SLACK, text)
    try:
        found = Actor.from_ref(text)
    except ValueError:
        found = None
    if found is None or found.kind not in (ActorKind.OPERATOR, ActorKind.SLACK):
        raise BadHolder(
            ReplyCode.BAD_OWNER,
            "Name the person who owns this program: a Slack id such as U012AB3CD, or operator:ada.",
        )
    return found


_MENTION = re.compile(r"<@([UW][A-Z0-9]{1,20})(?:\|[^>]*)?>")


def known_person(text: str, same_person: Iterable[Iterable[str]]) -> Actor:
    """Read a person as `person` does, or from a mention, or by a name that the policy links: `@carol`.

    Raises `BadHolder`.
    """
    bare = text.strip()
    mention = _MENTION.fullmatch(bare)
    name = f"operator:{bare.removeprefix('@')}"
    if any(name == one for names in same_person for one in names):
        return Actor.from_ref(name)
    return person(mention[1] if mention else bare)


def scopes(said: Iterable[str], of: Holder) -> tuple[Scope, ...]:
    """Return the scopes that were asked for; without any, what a program needs, and for a person also the decisions.

    Raises `BadHolder` for a name that is no scope and for what a program is never given.
    """
    wanted = tuple(dict.fromkeys(said))
    if not wanted:
        return (*PLAIN, Scope.APPROVALS_WRITE) if of.is_person else PLAIN
    unknown = [name for name in wanted if name not in set(Scope)]
    if unknown:
        raise BadHolder(ReplyCode.BAD_SCOPE, f"{unknown[0][:40]} is not a scope; there are {', '.join(Scope)}.")
    found = tuple(Scope(name) for name in wanted)
    refused = [scope for scope in found if scope in FOR_PEOPLE and not of.is_person]
    if refused:
        raise BadHolder(ReplyCode.SCOPE_FOR_PEOPLE, f"{refused[0]} is for the key of a person, such as operator:ada.")
    return found
