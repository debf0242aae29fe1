"""Show a migration on the cards of both of its sessions."""

from __future__ import annotations

from bot.services.relocation.messages import progress
from bot.slack.blocks.elements import safe
from ledger.kernel.steps.relocation_step import MigrationStep
from ledger.models import Migration

_MARKS = {
    MigrationStep.DONE: ":white_check_mark:",
    MigrationStep.FAILED: ":x:",
    MigrationStep.ENDING: ":warning:",
}


def lines(migration: Migration | None, request_id: str) -> list[str]:
    """Return the line about a migration on the card of a request; none where there is no migration."""
    if migration is None:
        return []
    said = safe(progress(migration, request_id), 400)
    return [f"{_MARKS.get(migration.step, ':truck:')} {said}"]
