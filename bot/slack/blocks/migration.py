"""Show a migration on the cards of both of its sessions."""

from __future__ import annotations

from bot.rules.migrations.text import progress_line
from bot.slack.blocks.elements import safe
from ledger.kernel.ids import short_id
from ledger.kernel.steps.migration_step import MigrationStep
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
    said = progress_line(
        migration.step,
        migration.note,
        short_id(migration.source_request_id),
        short_id(migration.request_id),
        is_target=migration.request_id == request_id,
    )
    return [f"{_MARKS.get(migration.step, ':truck:')} {safe(said, 400)}"]
