"""Webhooks: addresses that are told what happens, signed after Standard Webhooks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from bot.api.dependencies import AtDesk, caller, refusals
from bot.api.problems import ProblemRaised
from bot.api.routes.requests import Cursor, Limit
from bot.api.schemas.base import Page
from bot.api.schemas.webhooks import DeliveryOut, ReplayIn, WebhookDone, WebhookIn, WebhookOut
from bot.rules.access.scopes import Scope
from bot.services.access import authorization
from bot.services.access.api_keys import Principal
from bot.services.runtime.commands import Reply
from bot.services.webhooks import subscriptions as service
from ledger.queries.webhooks import deliveries, webhooks
from ledger.queries.webhooks import webhook as find

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])
Owner = Annotated[Principal, caller(Scope.WEBHOOKS_WRITE)]
Hook = Annotated[
    str, Path(pattern=r"^whk_[0-9a-z]{16}$", examples=["whk_01k9x7m2q4d8s3f5"], description="The id of the webhook.")
]


def _done(reply: Reply) -> WebhookDone:
    if not reply.ok:
        raise ProblemRaised(reply)
    return WebhookDone(code=reply.code, sentence=reply.sentence, **reply.data)


@router.get("", responses=refusals())
async def list_webhooks(desk: AtDesk, who: Owner) -> list[WebhookOut]:
    """The webhooks that this key may see, without their secrets."""
    async with desk.ctx.db.read() as tx:
        found = await webhooks(tx, await authorization.visible(tx, desk.ctx.policy, who))
    return [WebhookOut.model_validate(one) for one in found]


@router.post("", status_code=201, responses=refusals(409))
async def create_webhook(desk: AtDesk, who: Owner, body: WebhookIn) -> WebhookDone:
    """Name an address that is told what happens to one's own things. Its secret is shown this once."""
    return _done(await service.create(desk.ctx, who, service.NewWebhook(body.url, tuple(body.topics), body.note)))


@router.delete("/{webhook}", responses=refusals(404))
async def delete_webhook(desk: AtDesk, who: Owner, webhook: Hook) -> WebhookDone:
    """Tell an address nothing any more."""
    return _done(await service.delete(desk.ctx, who, webhook))


@router.post("/{webhook}/test", status_code=202, responses=refusals(404, 409))
async def test_webhook(desk: AtDesk, who: Owner, webhook: Hook) -> WebhookDone:
    """Send a test message by the way that all others take."""
    return _done(await service.test(desk.ctx, who, webhook))


@router.post("/{webhook}/rotate", responses=refusals(404))
async def rotate_webhook(desk: AtDesk, who: Owner, webhook: Hook) -> WebhookDone:
    """Make a new secret, shown this once; the old one signs beside it for a day."""
    return _done(await service.rotate(desk.ctx, who, webhook))


@router.post("/{webhook}/replay", status_code=202, responses=refusals(404))
async def replay_webhook(desk: AtDesk, who: Owner, webhook: Hook, body: ReplayIn) -> WebhookDone:
    """Send one message again, or all that were given up; a webhook that was switched off is on again."""
    return _done(await service.replay(desk.ctx, who, webhook, body.delivery_id))


@router.get("/{webhook}/deliveries", responses=refusals(404))
async def list_deliveries(
    desk: AtDesk,
    who: Owner,
    webhook: Hook,
    failed: Annotated[bool, Query(description="Only those that were given up.")] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[DeliveryOut]:
    """What was sent to a webhook and what came of it, the newest first; kept for 30 days."""
    async with desk.ctx.db.read() as tx:
        if await find(tx, webhook, await authorization.visible(tx, desk.ctx.policy, who)) is None:
            raise ProblemRaised(service.UNKNOWN)
        rows = await deliveries(tx, webhook, failed=failed, before=cursor, limit=limit + 1)
    items = [DeliveryOut.model_validate(one) for one in rows[:limit]]
    return Page[DeliveryOut](items=items, next_cursor=items[-1].id if len(rows) > limit else None)
