"""Generate docs/notifications.md: the notifications, and the state change that sends each."""

from __future__ import annotations

from bot.cli.pages.markdown import code, table, whole_page
from ledger.kernel.states import ANNOUNCES, NotificationKind


def page() -> str:
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
