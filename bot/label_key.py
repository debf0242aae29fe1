"""Refuse to make a second label key for a deployment: with a new one every instance would count as forged."""

from __future__ import annotations

from bot.services.runtime.ends_copy import NAME
from bot.settings import Settings, stored_identity
from bot.settings.identity import IdentityError
from ledger.engine.db import Database
from ledger.queries.lookups import has_instances
from migrations import run as schema


class LabelKeyMissing(IdentityError):
    """Say that a deployment has lived, and its label key or its name is gone; `advice` says what to do."""

    def __init__(self, advice: str) -> None:
        super().__init__(f"The label key of this deployment is missing. {advice}")
        self.advice = advice


async def require_label_key(settings: Settings) -> None:
    """Raise `LabelKeyMissing` where neither a file nor a setting has the key of a deployment that has lived.

    It has where a copy of what must end is there, or the ledger has an instance. Call it before anything makes a key:
    it makes none. Raises `IdentityError` for a key that can't be read, and whatever the ledger raises.
    """
    given = settings.label_key.get_secret_value() if settings.label_key else None
    try:
        identity = stored_identity(settings.identity_dir, given, settings.deployment)
    except OSError as error:
        raise IdentityError(f"the label key cannot be read: {error}") from error
    if None not in identity:
        return
    if (settings.identity_dir / NAME).exists() or await _has_lived(settings):
        raise LabelKeyMissing(f"Put label.key and deployment.id back into {settings.identity_dir}, from a backup.")


async def _has_lived(settings: Settings) -> bool:
    """Whether the ledger has an instance, also one of the past; a ledger without tables has none."""
    db = Database(settings.database)
    try:
        if await schema.current(db) is None:
            return False
        async with db.read() as tx:
            return await has_instances(tx)
    finally:
        await db.close()
