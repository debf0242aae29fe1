"""Manage webhooks and their deliveries, signed after Standard Webhooks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from bot.api.dependencies import Deps, WebhookOwner, refusals
from bot.api.problems import ProblemRaised, answered
from bot.api.routes.requests import Cursor, Limit
from bot.api.schemas.base import Page
from bot.api.schemas.webhooks import DeliveryOut, ReplayIn, WebhookDone, WebhookIn, WebhookOut
from bot.rules.webhooks.webhooks import masked, stored_topics
from bot.services.access import authorization
from bot.services.webhooks import subscriptions as service
from ledger.queries.webhooks import deliveries, webhooks
from ledger.queries.webhooks import webhook as find

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])
Hook = Annotated[
    str, Path(pattern=r"^whk_[0-9a-z]{16}$", examples=["whk_01k9x7m2q4d8s3f5"], description="The id of the webhook.")
]


@router.get("", responses=refusals())
async def list_webhooks(deps: Deps, who: WebhookOwner) -> list[WebhookOut]:
    """List the webhooks that this key may see, without their secrets; of other people's addresses only the host."""
    async with deps.ctx.db.read() as tx:
        found = await webhooks(tx, await authorization.visible(tx, deps.ctx.policy, who))
        mine = await authorization.mine(tx, deps.ctx.policy, who.actor)
    names, policy = deps.ctx.names, deps.ctx.policy
    return [
        WebhookOut.of(
            one,
            url=one.url if one.actor in mine else masked(one.url),
            topics=stored_topics(one.topics),
            actor_name=names.of(policy, one.actor),
        )
        for one in found
    ]


@router.post("", status_code=201, responses=refusals(409, 503))
async def create_webhook(deps: Deps, who: WebhookOwner, body: WebhookIn) -> WebhookDone:
    """Create a webhook for events about your own requests and sessions.

    Its secret is shown this once.
    """
    return answered(
        WebhookDone, await service.create(deps.ctx, who, service.NewWebhook(body.url, tuple(body.topics), body.note))
    )


@router.delete("/{webhook}", responses=refusals(404))
async def delete_webhook(deps: Deps, who: WebhookOwner, webhook: Hook) -> WebhookDone:
    """Delete a webhook; it receives nothing any more."""
    return answered(WebhookDone, await service.delete(deps.ctx, who, webhook))


@router.post("/{webhook}/test", status_code=202, responses=refusals(404, 409))
async def test_webhook(deps: Deps, who: WebhookOwner, webhook: Hook) -> WebhookDone:
    """Send a test message, in the same way as all others."""
    return answered(WebhookDone, await service.test(deps.ctx, who, webhook))


@router.post("/{webhook}/rotate", responses=refusals(404))
async def rotate_webhook(deps: Deps, who: WebhookOwner, webhook: Hook) -> WebhookDone:
    """Rotate the secret, shown this once; the old one also signs for a day."""
    return answered(WebhookDone, await service.rotate(deps.ctx, who, webhook))


@router.post("/{webhook}/replay", status_code=202, responses=refusals(404))
async def replay_webhook(deps: Deps, who: WebhookOwner, webhook: Hook, body: ReplayIn) -> WebhookDone:
    """Send one message again, or all that failed finally; a disabled webhook is enabled again."""
    return answered(WebhookDone, await service.replay(deps.ctx, who, webhook, body.delivery_id))


@router.get("/{webhook}/deliveries", responses=refusals(404))
async def list_deliveries(
    deps: Deps,
    who: WebhookOwner,
    webhook: Hook,
    failed: Annotated[bool, Query(description="Only those that failed finally.")] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[DeliveryOut]:
    """List what was sent to a webhook and the result, the newest first; kept for 30 days."""
    async with deps.ctx.db.read() as tx:
        if await find(tx, webhook, await authorization.visible(tx, deps.ctx.policy, who)) is None:
            raise ProblemRaised(service.UNKNOWN)
        rows = await deliveries(tx, webhook, failed=failed, before=cursor, limit=limit + 1)
    items = [DeliveryOut.model_validate(one) for one in rows[:limit]]
    return Page[DeliveryOut](items=items, next_cursor=items[-1].id if len(rows) > limit else None)
