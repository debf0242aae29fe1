"""Generate docs/errors.md, every code that programs read, and docs/notifications.md, what causes each notification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from bot.cli.pages.markdown import code, table, whole_page
from bot.rules.market.filters import EXCLUSIONS
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.end_reason import EndReason
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import ANNOUNCES, InstanceState, NotificationKind, RequestState
from ledger.kernel.vocabulary import Vocabulary
from providers import errors

BLANK = "…"


def _provider_errors() -> list[tuple[str, str, str]]:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ProviderError)
    ]
    return [
        (
            code(k.code),
            " ".join((k.__doc__ or "").split("\n\n")[0].split()),
            "no effect" if k.definite_no else "effect unknown",
        )
        for k in kinds
    ]


def _words(vocabulary: Iterable[Vocabulary]) -> str:
    """Return a table of one vocabulary, in its own order."""
    return table(("code", "meaning"), [(code(word), word.label) for word in vocabulary])


def page() -> str:
    return whole_page(
        "Error and answer codes",
        "For programs: a code keeps its meaning once it is released. People read the sentence beside it.",
        "## What a cloud can answer",
        "The last column is about a call that creates an instance. *No effect*: the bot tries the next offer. *Effect "
        "unknown*: the bot searches for the instance, and never repeats the call.",
        table(("code", "meaning", "the call"), _provider_errors()),
        "## Answers to a command or a click",
        _words(sorted(ReplyCode)),
        "## Why an offer is left out",
        table(("code", "sentence"), [(code(name), text.replace("{n}", BLANK)) for name, text in EXCLUSIONS.items()]),
        "## Why a session or an instance ended",
        "An instance that was never launched has the code of the cloud's refusal instead.",
        table(("code", "in words", "kind of end"), [(code(one), one.label, one.group.label) for one in EndReason]),
        "## Kinds of requests",
        _words(RequestKind),
        "## Kinds of ledger entries",
        _words(EntryKind),
        "## Steps of the checkpoint check",
        _words(CheckpointStep),
        "## Events of the audit log",
        _words(EventKind),
    )


#: Kinds that no change of state causes → what sends them.
SENT_BY: Mapping[NotificationKind, str] = MappingProxyType(
    {
        NotificationKind.REQUEST_DETAILS: "the quote job, once for each quote version, in the thread of the request",
        NotificationKind.REQUEST_REMINDER: "the expiry job, while a request waits (`remind_after_s`)",
        NotificationKind.SESSION_ENDING: "the expiration job, at each time of `warn_before_end_s`",
        NotificationKind.SESSION_FINAL_WARNING: "the expiration job, at the last of these times",
        NotificationKind.SESSION_IDLE: "the idle job, when an agent reports no work or stops reporting",
        NotificationKind.SESSION_CHECKPOINT_HOLD: "the checkpoint check, while a checkpoint is not verified",
        NotificationKind.SESSION_TRANSFER: "an owner who offers the session, and again when the offer is closed",
        NotificationKind.BUDGET_THRESHOLD: "an approval that reaches a share of `budget_thresholds`",
        NotificationKind.SESSION_INTERRUPTED: "the health check and the overspend job, before a session ends early",
        NotificationKind.OPERATOR_PAGE: "any job that needs an operator",
        NotificationKind.DIGEST: "the digest job, at `digest_at`",
        NotificationKind.REPLY: "a command or a button, to the person who used it",
    }
)


#: Stored names of states that say little → how a person says them.
STATE_WORDS: Mapping[str, str] = MappingProxyType(
    {
        InstanceState.SENDING: "being launched",
        InstanceState.LIVE: "listed by its cloud",
        InstanceState.UNKNOWN: "of unknown outcome",
        InstanceState.TOMBSTONE: "proved to be never launched",
        RequestState.UNAVAILABLE: "without an offer",
    }
)


def notifications() -> str:
    """Return the page of notifications: what each one says, and what causes it."""
    rows = [(code(kind), kind.label, _cause(kind)) for kind in NotificationKind]
    return whole_page(
        "Notifications",
        "What the bot sends to people, and when. It sends one message per subject and place. When something changes, "
        "it edits that message instead of posting another. A termination waits for some of them, at most "
        "10 s, until every channel was tried once.",
        table(("kind", "what it says", "sent"), rows),
    )


def _cause(kind: NotificationKind) -> str:
    """Name the states that cause a notification, or the job that sends it."""
    reached = [
        (
            machine.__name__.removesuffix("State").lower(),
            [STATE_WORDS.get(state, str(state)) for state, kinds in found.items() if kind in kinds],
        )
        for machine, found in ANNOUNCES.items()
    ]
    changes = [f"{_article(name)} {name} is {_either(states)}" for name, states in reached if states]
    cause = "when " + "; when ".join(changes) if changes else f"by {SENT_BY[kind]}"
    return f"{cause}. A termination waits for it." if kind.delays_termination else cause


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _either(states: list[str]) -> str:
    """Join states: `a`, `a or b`, `a, b or c`."""
    *head, last = states
    return f"{', '.join(head)} or {last}" if head else last
