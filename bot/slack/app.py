"""Receive Slack's messages with Bolt over HTTP or Socket Mode; store each one before it is acknowledged."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bot.rules.approvals.approvers import members, slack_accounts
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import EVERY
from bot.services.runtime.context import Context
from bot.slack import actions, commands, home, key_command
from bot.slack.ack import plan
from bot.slack.blocks.home import CALLBACK
from bot.slack.guard import PAYLOAD, SIGNATURE_HEADER, Guard
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.identity import Directory
from bot.slack.inbound import InboundKind, key_of, read_payload, trigger_of
from bot.slack.notifier import Notifier
from bot.slack.settings import SlackSettings
from bot.slack.web import Web, WebError, quiet_logger
from bot.slack.worker import Worker
from ledger.core.inbox import Inbound, StorageUnknown

EVERYTHING = re.compile(".*", re.DOTALL)
#: How long a message waits until Slack has said which workspace this is; Slack gives up on it after three seconds.
TEAM_WAIT_S = 1.5
LIBRARIES = ("slack_bolt", "slack_sdk")
NO_TEAM_YET = "Slack hasn't confirmed this workspace yet, so nothing was done. Try again in a moment."
NOT_STORED = "I couldn't store this, so nothing was done. Try again in a moment."
MAY_BE_STORED = (
    "The database connection broke, so I don't know if your command was saved. Check in a minute before you try again."
)
#: Answers to a command that was not stored, or not for certain.
NOT_TAKEN = frozenset({NO_TEAM_YET, NOT_STORED, MAY_BE_STORED})

log = logging.getLogger(__name__)


async def process(handler: HandlerContext, job: HandlerJob) -> None:
    """Hand one stored message to its handler. It is idempotent, so it may run again after a crash."""
    if job.message.kind is InboundKind.COMMAND:
        await commands.run(handler, job)
    elif job.message.kind is InboundKind.ACTION:
        await actions.click(handler, job)
        if job.message.view == CALLBACK:
            await home.publish(handler, job)  # What was clicked there has changed what it shows.
    elif job.message.kind is InboundKind.VIEW:
        await actions.submitted(handler, job)
    elif job.message.kind is InboundKind.HOME:
        await home.publish(handler, job)


class SlackApp:
    """Run the Slack interface of this process; `start` and `stop` run in the loop that serves `asgi`."""

    def __init__(self, ctx: Context, settings: SlackSettings) -> None:
        for name in LIBRARIES:
            quiet_logger(name)
        self._settings = settings
        self._web = Web(settings)
        directory = Directory(
            self._web, ctx.clock, ctx.policy, settings.team_id, partial(ctx.names.keep, ctx.db, ctx.clock)
        )
        #: The context with people who can be looked up in Slack. The whole process uses this one, because a policy that
        #: is edited is taken up in it.
        self.ctx = ctx = replace(ctx, people=directory)
        self._handler = HandlerContext(ctx, settings, self._web, directory)
        self._worker = Worker(self._handler, process)
        self._bolt = self._build()
        self._socket: AsyncSocketModeHandler | None = None
        self.messenger = Notifier(ctx, settings, self._web)

    @property
    def asgi(self) -> Guard:
        """Return the application to mount at /slack/events; it needs the signing secret."""
        return Guard(self._serve, self._settings.signing_secret, self.ctx.clock)

    def take_up(self, policy: Policy) -> None:
        """Use another policy from now on."""
        self.ctx.policy = policy
        self._handler.directory.take_up(policy)

    @property
    def backlog(self) -> int:
        """Count the acknowledged messages that wait in memory."""
        return self._worker.backlog

    async def start(self) -> None:
        """Start the workers, and connect in Socket Mode. When Slack is away, this is logged and tried again later."""
        self._worker.start()
        try:
            await self._handler.directory.home_team()
        except WebError as error:
            log.warning("Slack did not say which workspace this is: %s", error)
        if self._settings.app_token:
            logger = quiet_logger("bot.slack.socket")
            self._socket = AsyncSocketModeHandler(self._bolt, self._settings.app_token, logger=logger)
            self._socket.client.proxy = self._settings.proxy
            await self._socket.connect_async()  # type: ignore[no-untyped-call] # Bolt does not type it.

    async def meet_approvers(self) -> None:
        """Look up the approvers of the policy whose names are not known yet."""
        ctx = self.ctx
        await ctx.names.refresh(ctx.db, ctx.clock)
        groups = (members(ctx.policy, group) for group in (EVERY, *ctx.policy.approval_groups))
        users = slack_accounts(ctx.policy, [name for names in groups for name in names])
        await self._handler.directory.meet(user for user in users if not ctx.names.of(ctx.policy, user))

    async def stop(self) -> None:
        """Accept nothing more, finish what is quick, close every connection."""
        if self._socket is not None:
            await self._socket.close_async()  # type: ignore[no-untyped-call] # Bolt does not type it.
            self._socket = None
        await self._worker.stop()
        await self.ctx.inbox.drain()
        await self._web.close()

    async def idle(self) -> None:
        """Wait until every acknowledged message in memory is processed."""
        await self._worker.idle()

    async def recover(self, now: datetime) -> int:
        """Claim messages whose process died, and those whose next try is due; the ticker calls this."""
        return await self._worker.recover(now)

    def _build(self) -> AsyncApp:
        # One workspace and one token: nothing is looked up per request, and Bolt only reads it.
        home = AuthorizeResult(enterprise_id=None, team_id=self._settings.team_id, bot_token=self._settings.bot_token)

        async def authorize(**_: Any) -> AuthorizeResult:
            return home

        bolt = AsyncApp(
            name="gpu-shopper",
            logger=quiet_logger("bot.slack.bolt"),
            client=self._web.bare_client(),
            authorize=authorize,
            signing_secret=self._settings.signing_secret,
            # The guard has verified the raw bytes already; a socket is authenticated when it connects.
            request_verification_enabled=False,
            ssl_check_enabled=False,
            ignoring_self_events_enabled=False,
            attaching_function_token_enabled=False,
            attaching_conversation_kwargs_enabled=False,
            # The listener ends right after the acknowledgement, so waiting for it is quicker than polling for it.
            process_before_response=True,
        )
        bolt.command(self._settings.command)(self._listen)
        bolt.action(EVERYTHING)(self._listen)
        bolt.view(EVERYTHING)(self._listen)
        bolt.event("app_home_opened")(self._listen)
        return bolt

    async def _listen(self, ack: Any, body: dict[str, Any], req: AsyncBoltRequest) -> None:
        """Plan the answer, store the message, acknowledge it and queue the work; a replay gets the stored answer."""
        self.ctx.pressure.arrived()
        answer = await self._take(body, req.headers)
        await ack(answer or "")

    async def _take(self, body: dict[str, Any], headers: Mapping[str, Any]) -> dict[str, Any]:
        received = read_payload(body)
        settings = self._settings
        home = await self._home_team()
        if home is None:
            if received.kind is InboundKind.COMMAND:
                return {"response_type": "ephemeral", "text": NO_TEAM_YET}
            raise WebError("auth.test", "no_answer")  # Slack shows the person an error.
        planned = plan(received, self.ctx.policy, self.ctx.clouds, settings.command, home)
        if planned.work is None:
            return planned.answer
        signature = next(iter(headers.get(SIGNATURE_HEADER, ())), None)
        key = key_of(body, signature)
        received = key_command.without_plain_value(self.ctx, received)
        message = Inbound(key, received.kind, received.to_json(), planned.answer, self.ctx.clock.now())
        try:
            receipt = await self.ctx.inbox.put(message)
        except Exception as error:
            log.exception("an inbound message was not stored")
            if received.kind is InboundKind.COMMAND:
                text = MAY_BE_STORED if isinstance(error, StorageUnknown) else NOT_STORED
                return {"response_type": "ephemeral", "text": text}
            raise
        if receipt.claim is not None:
            since = self.ctx.clock.monotonic()
            job = HandlerJob(key, receipt.claim, received, trigger_of(body), since, planned.parsed)
            self._worker.submit(job, urgent=received.kind is not InboundKind.COMMAND or not planned.answer)
        return receipt.answer

    async def _home_team(self) -> str | None:
        """Return the workspace that installed the app, or None while Slack does not say: then nobody's message counts.

        Otherwise another workspace's members would be obeyed until Slack has answered for the first time.
        """
        known = self._handler.directory.known_team
        if known is not None:
            return known
        try:
            async with asyncio.timeout(TEAM_WAIT_S):
                return await self._handler.directory.home_team()
        except (TimeoutError, WebError) as error:
            log.warning("a message was refused, because Slack did not say which workspace this is: %s", error)
            return None

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve Bolt behind the guard: a verified payload in, Bolt's answer out."""
        if scope["type"] != "http":
            raise ValueError(f"the Slack endpoint serves HTTP only, not {scope['type']}")
        # The signature is the key of the inbox. Bolt takes a parsed payload only in the mode that is named after
        # sockets; nothing that is switched on here behaves differently in it.
        signature = next(value for name, value in scope["headers"] if name.lower() == SIGNATURE_HEADER.encode())
        headers = {SIGNATURE_HEADER: signature.decode("latin-1")}
        request = AsyncBoltRequest(body=scope[PAYLOAD], headers=dict(headers), mode="socket_mode")
        response = await self._bolt.async_dispatch(request)
        kind = response.first_headers_without_set_cookie().get("content-type", "text/plain; charset=utf-8")
        await Response(response.body, response.status, {"content-type": kind})(scope, receive, send)
