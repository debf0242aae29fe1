"""The chart of a plan. It goes to the direct messages of whoever asked: a private answer cannot hold an upload."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bot.services.plans.chart import chart
from bot.services.plans.planner import Planned
from bot.services.plans.text import title
from bot.slack.blocks.elements import safe
from bot.slack.blocks.private_answer import said
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.web import WebError

NAME: Final = "gpu_plan.png"
TITLE: Final = "Expected cost against expected hours"
_COMMENT: Final = "The chart of the plan for {plan}: total cost against hours. Nothing was rented or asked for."

log = logging.getLogger(__name__)


async def share(desk: HandlerContext, job: HandlerJob, planned: Planned) -> None:
    """Show it, or say why it cannot be shown; the plan itself does not depend on it."""
    if planned.best is None:
        return
    # Drawing takes a good part of a second of computing, and others wait for their acknowledgement meanwhile.
    picture = await asyncio.to_thread(chart, planned)
    try:
        opened = await desk.web.call("conversations.open", users=job.message.user)
        direct = str((opened.get("channel") or {}).get("id") or "")
        comment = _COMMENT.format(plan=safe(title(planned), 300))
        await desk.web.share_picture(direct, NAME, picture, title=TITLE, said=comment)
    except WebError as error:
        log.warning("the chart of a plan was not shown: %s", error)
        await desk.say(job, said(f"The plan's chart could not be shown ({safe(error.code)})."), about="chart")
