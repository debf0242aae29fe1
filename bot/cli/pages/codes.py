"""Generate docs/errors.md, every code that programs read, and docs/notifications.md, what causes each notification."""

from __future__ import annotations

from collections.abc import Iterable

from bot.cli.pages.markdown import code, table, whole_page
from bot.rules.market.filters import EXCLUSIONS
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.end_reason import EndReason
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import ANNOUNCES, NotificationKind
from ledger.kernel.vocabulary import Vocabulary
from providers import errors

BLANK = "…"


def _provider_errors() -> list[tuple[str, str, str]]:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ProviderError)
    ]
    return [(code(k.code), " ".join((k.__doc__ or "").split()), "yes" if k.definite_no else "no") for k in kinds]


def _words(vocabulary: Iterable[Vocabulary]) -> str:
    """Return a table of one vocabulary, in its own order."""
    return table(("code", "meaning"), [(code(word), word.label) for word in vocabulary])


def page() -> str:
    return whole_page(
        "Error and answer codes",
        "Programs read codes; people read the sentence beside them. A code keeps its meaning once it is released.",
        "## What a cloud can answer",
        "On a create, *definite no* separates “try the next offer” from “the outcome is unknown”.",
        table(("code", "meaning", "definite no"), _provider_errors()),
        "## What a command or a click is answered",
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


def notifications() -> str:
    """Return the page."""
    causes: dict[NotificationKind, list[str]] = {kind: [] for kind in NotificationKind}
    for machine, table_of in ANNOUNCES.items():
        name = machine.__name__.removesuffix("State").lower()
        for state, kinds in table_of.items():
            for kind in kinds:
                causes[kind].append(f"{name} becomes {state}")
    rows = [
        (
            code(kind),
            kind.label,
            "; ".join(found) or "a service says so, not a move",
            "yes" if kind.delays_termination else "no",
        )
        for kind, found in causes.items()
    ]
    return whole_page(
        "Notifications",
        "Each is a row of the outbox, written in the transaction of the move that causes it and rendered from state "
        "when it is shown. One row per kind, subject and place: announcing again edits the message that is there. A "
        "termination waits for some of them, at most 10 s, until their delivery was attempted once on every channel.",
        table(("kind", "what it tells", "written when", "a termination waits for it"), rows),
    )
