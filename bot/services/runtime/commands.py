"""What doors hand to services, and what they get back. Frozen values: a command says what somebody asked, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from bot.rules.approvals.decision import DeciderFacts
from bot.rules.instances.power import PowerAction
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import Actor
from ledger.kernel.job import JobRequest


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one command. Every door shows `sentence`; programs read `code`; `data` names what was made."""

    ok: bool
    code: ReplyCode
    sentence: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Provision:
    """Ask for GPUs. `key` identifies the inbound message: the same key asks once. `channel` is where it is answered."""

    key: str
    actor: Actor
    channel: str
    job: JobRequest


@dataclass(frozen=True, slots=True)
class Decide:
    """A click on Approve, Reject or Cancel. `token` says which request, quote version and option it was bound to.

    `typed_amount` is what the approver typed into the dialog, None when no dialog was shown yet; `cap_usd` is a total
    cap below the worst case, `hours` a shorter time. `seen` is the digest of what earlier approvers had made of it.
    `key` names the call: the same call again decides nothing. Empty where nobody repeats one.
    """

    token: str
    decider: DeciderFacts
    reason: str = ""
    typed_amount: str | None = None
    cap_usd: Decimal | None = None
    hours: Decimal | None = None
    seen: str | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Withdraw a request by its id (or a unique ending of it)."""

    request: str
    decider: DeciderFacts
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Terminate:
    """End a session now, by its id (or a unique ending of it, or its request's).

    `seen_end_s` is the end (seconds since 1970) that the message with the button spoke of: when another one stands by
    now, nothing happens. None: the command was not about an end.
    """

    session: str
    decider: DeciderFacts
    reason: str = ""
    seen_end_s: int | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """Stop, start or restart a session."""

    session: str
    decider: DeciderFacts
    order: PowerAction
    #: The stop is for keeping what is on the machine: where it keeps nothing, it is refused.
    keep: bool = False
    #: What names the call that orders it; the same call again orders nothing. Empty where nobody repeats one.
    key: str = ""


@dataclass(frozen=True, slots=True)
class FinishSession:
    """The work of a session is done: end it. `succeeded` is what its owner says about the outcome.

    `preserve` stops it instead, so that its disk is there until the approved end.
    """

    session: str
    decider: DeciderFacts
    succeeded: bool = True
    preserve: bool = False
    seen_end_s: int | None = None
    #: What names the call, as for `Switch`: a stop is ordered by it, an end is there once anyway.
    key: str = ""


@dataclass(frozen=True, slots=True)
class Extend:
    """Ask for `hours` more for a session. `key` identifies the inbound message: the same key asks once.

    `only_inside` takes what was approved already and never asks for more.
    """

    key: str
    session: str
    hours: Decimal
    decider: DeciderFacts
    reason: str = ""
    seen_end_s: int | None = None
    only_inside: bool = False


@dataclass(frozen=True, slots=True)
class AnswerCheckpointHold:
    """Let what is held at its end go: its data is `saved` elsewhere, or it may be lost.

    `seen_end_s` is until when it was held as the message said; when that was changed, nothing happens.
    """

    session: str
    decider: DeciderFacts
    seen_end_s: int | None
    saved: bool = False


@dataclass(frozen=True, slots=True)
class KeepRunning:
    """Keep a session for an hour that would be ended before its approved end, as at `seen_end_s`."""

    session: str
    decider: DeciderFacts
    seen_end_s: int | None = None


@dataclass(frozen=True, slots=True)
class AddKey:
    """Register the one public SSH key of a user."""

    actor: Actor
    public_key: str
    #: What names the call, as for `Switch`.
    key: str = ""
