"""Give every handler the services' context, Slack, and the ways to answer a person."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from bot.blockkit import validate_view
from bot.rules.approvals.approvers import DeciderFacts, Deed, ineligible
from bot.rules.grammar.parser import ParsedCommand
from bot.services.access import delegation
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from bot.slack.blocks.elements import Message
from bot.slack.identity import Directory
from bot.slack.inbound import InboundMessage
from bot.slack.modals import View
from bot.slack.settings import SlackSettings
from bot.slack.web import Web, WebError
from ledger.core.claims import Claim
from ledger.core.events import announce
from ledger.core.outbox import notification_of
from ledger.kernel.states import NotificationKind

#: A trigger id is valid for three seconds from the click; the way here takes part of them.
TRIGGER_S = 2.5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HandlerJob:
    """One stored message to process.

    Set only right after it arrived: `trigger`, `since` (when it arrived, monotonic seconds) and `parsed`, its words.
    """

    key: str
    claim: Claim
    message: InboundMessage
    trigger: str = ""
    since: float = 0.0
    parsed: ParsedCommand | None = None


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """What every handler works with."""

    ctx: Context
    settings: SlackSettings
    web: Web
    directory: Directory

    async def facts(self, job: HandlerJob) -> DeciderFacts:
        """Return what Slack knows now of the person who sent the message."""
        return await self.directory.facts(job.message.user, job.message.team)

    async def ineligible(self, job: HandlerJob, deed: Deed) -> Reply | None:
        """Return the refusal for a person who may not do this, by what Slack knows of them now; None where they may."""
        found = ineligible(self.ctx.policy, await self.facts(job), deed)
        return None if found is None else refuse(found.code, found.sentence)

    async def decider(self, job: HandlerJob) -> DeciderFacts:
        """Return the facts about the approver, with what Slack knows now of those who delegated to them."""
        return await delegation.looked_up(self.ctx, await self.facts(job))

    async def say(self, job: HandlerJob, message: Message, channel: str = "", *, about: str = "") -> None:
        """Answer privately, through the outbox, so that the answer survives a crash; the same answer is sent once.

        `about` distinguishes a further answer to the same message from the first.
        """
        subject = f"{job.key}/{about}" if about else job.key
        where = channel or job.message.channel
        destination = f"{where}/{job.message.user}" if where else job.message.user
        now = self.ctx.clock.now()
        async with self.ctx.db.write() as tx:
            kind = NotificationKind.REPLY
            if await notification_of(tx, kind, subject, destination) is not None:
                return
            body = message.payload()
            await announce(tx, now, kind, subject, destination=destination, body=body)
        self.ctx.hints.outbox.set()

    async def open(self, job: HandlerJob, view: View, instead: str, channel: str = "") -> None:
        """Open a dialog while its trigger is valid; afterwards say `instead`, the sentence about what to do."""
        if not await self.show(job, view, "views.open"):
            await self.say(job, Message.of(instead), channel)

    async def change(self, view_id: str, view: View) -> bool:
        """Replace the content of an open dialog; False when it was closed meanwhile or cannot be shown."""
        note_problems(view)
        try:
            await self.web.call("views.update", view_id=view_id, view=view)
        except WebError as error:
            log.info("the dialog %s was not changed: %s", view["callback_id"], error)
            return False
        return True

    async def show(self, job: HandlerJob, view: View, method: str) -> str:
        """Open a dialog, or push one, while the trigger is valid. Returns its id, empty when it is not shown."""
        age_s = self.ctx.clock.monotonic() - job.since
        if job.trigger and age_s < TRIGGER_S:
            note_problems(view)
            try:
                answer = await self.web.call(method, trigger_id=job.trigger, view=view)
                return str((answer.get("view") or {}).get("id") or "")
            except WebError as error:
                log.warning("the dialog %s did not open: %s", view["callback_id"], error)
        return ""


def note_problems(view: View) -> None:
    """Log what is wrong with a dialog or Home tab; Slack then refuses it."""
    if problems := validate_view(view):
        log.error("the dialog %s is not valid: %s", view["callback_id"], "; ".join(problems[:3]))
