"""Show the chart of a plan in the requester's direct messages, because a private answer cannot hold an upload."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bot.services.plans import chart as pictures
from bot.services.plans.planner import Planned
from bot.services.plans.text import title
from bot.slack.blocks.elements import Message, safe
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.web import WebError

NAME: Final = "gpu_plan.png"
_COMMENT: Final = "The chart of the plan for {plan}. Nothing was rented or requested."

log = logging.getLogger(__name__)


async def share(handler: HandlerContext, job: HandlerJob, planned: Planned) -> None:
    """Show the chart, or say why it cannot be shown; the plan itself does not depend on it."""
    if planned.best is None:
        return
    # Drawing computes for a good part of a second; in a thread it does not delay other acknowledgements.
    picture = await asyncio.to_thread(pictures.chart, planned)
    try:
        opened = await handler.web.call("conversations.open", users=job.message.user)
        direct = str((opened.get("channel") or {}).get("id") or "")
        comment = _COMMENT.format(plan=safe(title(planned), 300))
        await handler.web.share_picture(direct, NAME, picture, title=pictures.title(planned), said=comment)
    except WebError as error:
        log.warning("the chart of a plan was not shown: %s", error)
        await handler.say(job, Message.of(f"The plan's chart could not be shown ({safe(error.code)})."), about="chart")
