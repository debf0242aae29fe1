"""docs/notifications.md: what people hear, and after which move."""

from __future__ import annotations

from bot.cli.pages.markdown import code, table
from bot.cli.pages.markdown import page as whole
from ledger.kernel.states import ANNOUNCES, NotificationKind


def page() -> str:
    """The page."""
    causes: dict[NotificationKind, list[str]] = {kind: [] for kind in NotificationKind}
    for machine, table_of in ANNOUNCES.items():
        name = machine.__name__.removesuffix("State").lower()
        for state, kinds in table_of.items():
            for kind in kinds:
                causes[kind].append(f"{name} becomes {state}")
    rows = [(code(kind), "; ".join(found) or "a service says so, not a move") for kind, found in causes.items()]
    return whole(
        "Notifications",
        "Each is a row of the outbox, written in the transaction of the move that causes it and rendered from state "
        "when it is shown. One row per kind, subject and place: announcing again edits the message that is there.",
        table(("kind", "written when"), rows),
    )
