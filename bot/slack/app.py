"""The door itself: Bolt in HTTP or Socket Mode, the inbox before every acknowledgement, and the worker behind it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult

from bot.services.runtime.context import Context
from bot.slack import actions, commands, home
from bot.slack.ack import plan
from bot.slack.blocks.home import CALLBACK
from bot.slack.guard import PAYLOAD, SIGNATURE_HEADER, Asgi, Guard, Receive, Scope, Send
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.identity import Directory
from bot.slack.inbound import InboundKind, key_of, read_payload, trigger_of
from bot.slack.notifier import Notifier
from bot.slack.settings import SlackSettings
from bot.slack.web import Web, WebError, quiet_logger
from bot.slack.worker import Worker
from ledger.core.inbox import Inbound

EVERYTHING = re.compile(".*", re.DOTALL)
LIBRARIES = ("slack_bolt", "slack_sdk")
NOT_STORED = "I could not note this down, so nothing was done. Please try again in a moment."

log = logging.getLogger(__name__)


async def process(desk: HandlerContext, job: HandlerJob) -> None:
    """Hand one stored message to its handler. Idempotent, so that it may run again after a crash."""
    if job.message.kind is InboundKind.COMMAND:
        await commands.run(desk, job)
    elif job.message.kind is InboundKind.ACTION:
        await actions.click(desk, job)
        if job.message.view == CALLBACK:
            await home.publish(desk, job)  # What was clicked there has changed what it shows.
    elif job.message.kind is InboundKind.VIEW:
        await actions.submitted(desk, job)
    elif job.message.kind is InboundKind.HOME:
        await home.publish(desk, job)


class SlackApp:
    """Everything that Slack needs of this process. `start` and `stop` run in the loop that serves `asgi`."""

    def __init__(self, ctx: Context, settings: SlackSettings) -> None:
        for name in LIBRARIES:
            quiet_logger(name)
        self._ctx = ctx
        self._settings = settings
        self._web = Web(settings)
        self._desk = HandlerContext(
            ctx, settings, self._web, Directory(self._web, ctx.clock, ctx.policy, settings.team_id)
        )
        self._worker = Worker(self._desk, process)
        self._bolt = self._build()
        self._socket: AsyncSocketModeHandler | None = None
        self.messenger = Notifier(ctx, settings, self._web)

    @property
    def asgi(self) -> Asgi:
        """The application to mount at /slack/events; it needs the signing secret."""
        return Guard(self._serve, self._settings.signing_secret, self._ctx.clock)

    @property
    def people(self) -> Directory:
        """Who people are, for the doors that are not Slack."""
        return self._desk.directory

    @property
    def backlog(self) -> int:
        """How many acknowledged messages wait in memory."""
        return self._worker.backlog

    async def start(self) -> None:
        """Start the workers, and in Socket Mode connect. Slack being away now is logged, and asked again later."""
        self._worker.start()
        try:
            await self._desk.directory.home_team()
        except WebError as error:
            log.warning("Slack did not say which workspace this is: %s", error)
        if self._settings.app_token:
            logger = quiet_logger("bot.slack.socket")
            self._socket = AsyncSocketModeHandler(self._bolt, self._settings.app_token, logger=logger)
            self._socket.client.proxy = self._settings.proxy
            await self._socket.connect_async()  # type: ignore[no-untyped-call] # Bolt does not type it.

    async def stop(self) -> None:
        """Take nothing more, finish what is quick, close every connection."""
        if self._socket is not None:
            await self._socket.close_async()  # type: ignore[no-untyped-call] # Bolt does not type it.
            self._socket = None
        await self._worker.stop()
        await self._ctx.inbox.drain()
        await self._web.close()

    async def idle(self) -> None:
        """Wait until every acknowledged message in memory has been worked on."""
        await self._worker.idle()

    async def recover(self, now: datetime) -> int:
        """Take over messages whose process died, and those whose next try is due; the ticker calls this."""
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
            # The guard has verified the raw bytes already, and a socket is its own proof.
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
        """Plan the answer, store the message, acknowledge, and queue the work; a replay gets the stored answer."""
        self._ctx.pressure.arrived()
        answer = await self._take(body, req.headers)
        await ack(answer or "")

    async def _take(self, body: dict[str, Any], headers: Mapping[str, Any]) -> dict[str, Any]:
        heard = read_payload(body)
        settings = self._settings
        planned = plan(
            heard, self._ctx.policy, tuple(self._ctx.providers), settings.command, self._desk.directory.known_team
        )
        if planned.work is None:
            return planned.answer
        signature = next(iter(headers.get(SIGNATURE_HEADER, ())), None)
        key = key_of(body, signature)
        message = Inbound(key, heard.kind, heard.to_json(), planned.answer, self._ctx.clock.now())
        try:
            receipt = await self._ctx.inbox.put(message)
        except Exception:
            log.exception("an inbound message was not stored")
            if heard.kind is InboundKind.COMMAND:
                return {"response_type": "ephemeral", "text": NOT_STORED}
            raise
        if receipt.claim is not None:
            since = self._ctx.clock.monotonic()
            job = HandlerJob(key, receipt.claim, heard, trigger_of(body), since, planned.parsed)
            self._worker.submit(job, urgent=heard.kind is not InboundKind.COMMAND or not planned.answer)
        return receipt.answer

    async def _serve(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """The ASGI application behind the guard: a verified payload in, Bolt's answer out."""
        if scope["type"] != "http":
            raise ValueError(f"the Slack door speaks HTTP only, not {scope['type']}")
        # The signature is the key of the inbox. Bolt takes a parsed payload only in the mode that is named after
        # sockets; nothing that is switched on here behaves differently in it.
        signature = next(value for name, value in scope["headers"] if name.lower() == SIGNATURE_HEADER.encode())
        headers = {SIGNATURE_HEADER: signature.decode("latin-1")}
        request = AsyncBoltRequest(body=scope[PAYLOAD], headers=dict(headers), mode="socket_mode")
        response = await self._bolt.async_dispatch(request)
        raw = response.body.encode("utf-8")
        kind = response.first_headers_without_set_cookie().get("content-type", "text/plain; charset=utf-8")
        head = [(b"content-type", kind.encode("latin-1")), (b"content-length", b"%d" % len(raw))]
        await send({"type": "http.response.start", "status": response.status, "headers": head})
        await send({"type": "http.response.body", "body": raw})
