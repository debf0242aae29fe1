"""Define the commands that clients send to services, and the reply they get.

All are frozen values: a command states once what somebody asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from bot.rules.approvals.decision import DeciderFacts
from bot.rules.instances.power import PowerAction
from bot.rules.jobs.job import JobRequest
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import Actor
from ledger.kernel.steps.grace import GraceChoice

#: The name in a reply's data of the seconds after which the same command can be carried out.
RETRY_AFTER: Final = "retry_after_s"


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one command: clients show `sentence`, programs read `code`, `data` names what was created."""

    ok: bool
    code: ReplyCode
    sentence: str
    data: dict[str, Any] = field(default_factory=dict)


def refuse(code: ReplyCode, sentence: str, data: dict[str, Any] | None = None) -> Reply:
    """Return the reply that nothing was done, and why."""
    return Reply(False, code, sentence, data or {})


@dataclass(frozen=True, slots=True)
class Provision:
    """Request GPUs. `key` identifies the inbound message: the same key creates one request. Replies go to `channel`.

    `run_id` is the first request of the run that it continues. `by_agent`: an AI agent asks with a person's rights, so
    the policy approves nothing of it. `sent_by` is the person who requests for a program of theirs.
    """

    key: str
    actor: Actor
    channel: str
    job: JobRequest
    run_id: str | None = None
    by_agent: bool = False
    sent_by: Actor | None = None


@dataclass(frozen=True, slots=True)
class Decide:
    """Approve, reject or cancel by button. `token` names the request, quote version and option of that button.

    `typed_amount` is what the approver typed into the dialog, None when no dialog was shown yet; `cap_usd` is a total
    cap below the worst case, `hours` a shorter time. `seen` is the digest of what earlier approvers had changed.
    `key` names the call: a repeated call decides nothing. Empty where calls are never repeated.
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

    `seen_end_s` is the end (seconds since 1970) that the message with the button named. When the end has changed
    since, nothing happens. None: the command was not about an end.
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
    #: The stop is meant to retain the disk: where the cloud retains nothing, the stop is refused.
    keep: bool = False
    #: Names the call; a repeated call orders nothing. Empty where calls are never repeated.
    key: str = ""


@dataclass(frozen=True, slots=True)
class FinishSession:
    """End a session whose work `succeeded` or not; `preserve`: stop it, and keep its disk until its end."""

    session: str
    decider: DeciderFacts
    succeeded: bool = True
    preserve: bool = False
    seen_end_s: int | None = None
    #: Names the call, as in `Switch`, so that a stop is ordered once; a session ends only once anyway.
    key: str = ""


@dataclass(frozen=True, slots=True)
class Extend:
    """Request `hours` more for a session. `key` identifies the inbound message: the same key requests once.

    `only_inside` uses time that was approved already and never requests more.
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
    """Release a session from its checkpoint hold: its data is `saved` elsewhere, or it may be lost.

    `seen_end_s` is the end of the hold that the message named; when that has changed since, nothing happens.
    """

    session: str
    decider: DeciderFacts
    seen_end_s: int | None
    saved: bool = False


@dataclass(frozen=True, slots=True)
class KeepRunning:
    """Keep a session that would end early, at `seen_end_s`, running for an hour."""

    session: str
    decider: DeciderFacts
    seen_end_s: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerGrace:
    """Decide what happens to a session's machine in grace.

    `seen_since_s` is since when the message with the button named it to be in grace; another one is left alone.
    """

    session: str
    decider: DeciderFacts
    choice: GraceChoice
    seen_since_s: int | None = None
    #: Names the call, as in `Switch`.
    key: str = ""


@dataclass(frozen=True, slots=True)
class AddKey:
    """Register a public SSH key of a user."""

    actor: Actor
    public_key: str
    #: Names the call, as in `Switch`.
    key: str = ""
