"""Notify people that a network volume is not deleted, because something mounts it."""

from __future__ import annotations

from bot.services.notifications.paging import page, page_with_owner
from bot.services.runtime.context import Context
from ledger.core import notifications_of
from ledger.kernel.job import volume_of
from ledger.kernel.states import NotificationKind
from ledger.models import Instance, Orphan, Session
from providers.errors import InUse, ProviderError


async def notify(ctx: Context, row: Instance, error: ProviderError) -> None:
    """Notify the owner and the operators once of what mounts a volume that is to be deleted.

    The deletion is tried again. Every other error of a deletion is nothing that they can change.
    """
    if not isinstance(error, InUse):
        return
    subject, now = f"{row.id}/in-use", ctx.clock.now()
    async with ctx.db.write() as tx:
        if await notifications_of(tx, NotificationKind.OPERATOR_PAGE, subject):
            return
        session = await tx.get_one(Session, row.session_id)
        name = volume_of(session.gpu)
        said = f"Volume {name} isn't deleted yet: {error.message}. It is deleted once nothing uses it."
        await page_with_owner(tx, ctx.policy, session, subject, said, now)
    ctx.hints.outbox.set()


async def notify_operators(ctx: Context, orphan: Orphan, error: ProviderError) -> None:
    """Notify the operators of what mounts a volume without a session that is to be deleted."""
    if isinstance(error, InUse):
        await page(ctx, f"{orphan.id}/in-use", f"{orphan.cloud} still has {orphan.ref}: {error.message}.")
