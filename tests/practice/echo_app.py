"""A small Bolt app that does one of everything, so that the practice workspace is tried with the real library."""

from __future__ import annotations

from typing import Any

from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

SIGNING_SECRET = "practice-signing-secret"
BOT_TOKEN = "xoxb-practice"
APP_TOKEN = "xapp-practice"


def plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text}


def modal(callback_id: str = "ask", **extra: Any) -> dict[str, Any]:
    options = [{"text": plain(words), "value": value} for words, value in (("One hour", "1"), ("Two hours", "2"))]
    return {
        "type": "modal",
        "callback_id": callback_id,
        "title": plain("Ask"),
        "submit": plain("Send"),
        "close": plain("Cancel"),
        "notify_on_close": True,
        "blocks": [
            {
                "type": "input",
                "block_id": "reason",
                "label": plain("Reason"),
                "element": {"type": "plain_text_input", "action_id": "reason", "max_length": 20},
            },
            {
                "type": "input",
                "block_id": "hours",
                "optional": True,
                "label": plain("Hours"),
                "element": {"type": "static_select", "action_id": "hours", "options": options},
            },
            {
                "type": "actions",
                "block_id": "more",
                "elements": [{"type": "button", "action_id": "more", "text": plain("More"), "value": "more"}],
            },
        ],
        **extra,
    }


def offer_blocks() -> list[dict[str, Any]]:
    return [
        {"type": "section", "text": {"type": "mrkdwn", "text": "*1x H100* for $2.10/h"}},
        {
            "type": "actions",
            "block_id": "decide",
            "elements": [
                {"type": "button", "action_id": "approve", "text": plain("Approve"), "value": "r1", "style": "primary"},
                {"type": "button", "action_id": "reject", "text": plain("Reject"), "value": "r1", "style": "danger"},
            ],
        },
    ]


class EchoApp:
    """The app, and what it has seen."""

    def __init__(self, api_url: str) -> None:
        self.client = AsyncWebClient(token=BOT_TOKEN, base_url=api_url, timeout=5)
        self.bolt = AsyncApp(client=self.client, signing_secret=SIGNING_SECRET)
        self.handler = AsyncSlackRequestHandler(self.bolt)
        self.asgi = Starlette(routes=[Route("/slack/events", self._events, methods=["POST"])])
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: dict[str, Any] = {}
        self._listen()

    async def _events(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        return await self.handler.handle(request)

    def _listen(self) -> None:
        self.bolt.command("/gpu")(self.on_command)
        self.bolt.action("approve")(self.on_approve)
        self.bolt.action("reject")(self.on_reject)
        self.bolt.action("more")(self.on_more)
        self.bolt.view("ask")(self.on_submit)
        self.bolt.view_closed("ask")(self.on_closed)
        self.bolt.event("app_home_opened")(self.on_home)
        self.bolt.event("message")(self.on_message)

    async def on_command(self, ack: Any, body: dict[str, Any], respond: Any, client: AsyncWebClient) -> None:
        self.seen.append(("command", body))
        text = body.get("text", "")
        if text == "silence":
            return
        if text == "crash":
            raise RuntimeError("the app failed")
        await ack("at once" if text == "help" else "")
        if text == "ask":
            await client.views_open(trigger_id=body["trigger_id"], view=modal())
        elif text == "offer":
            await client.chat_postMessage(channel=body["channel_id"], text="An offer", blocks=offer_blocks())
        elif text not in {"help", "quiet"}:
            await respond(f"echo: {text}")

    async def on_approve(self, ack: Any, body: dict[str, Any], client: AsyncWebClient) -> None:
        self.seen.append(("approve", body))
        await ack()
        place = {"channel": body["channel"]["id"], "ts": body["message"]["ts"]}
        words = f"Approved by <@{body['user']['id']}>"
        await client.chat_update(**place, text=words, blocks=[])
        await client.chat_postMessage(channel=place["channel"], thread_ts=place["ts"], text="Placing it")
        await client.chat_postMessage(channel=body["user"]["id"], text="You approved it")

    async def on_reject(self, ack: Any, body: dict[str, Any], respond: Any) -> None:
        self.seen.append(("reject", body))
        await ack()
        await respond(text="You may not decide this", response_type="ephemeral", replace_original=False)

    async def on_more(self, ack: Any, body: dict[str, Any], client: AsyncWebClient) -> None:
        self.seen.append(("more", body))
        await ack()
        await client.views_update(view_id=body["view"]["id"], hash=body["view"]["hash"], view=modal(title=plain("Two")))

    async def on_submit(self, ack: Any, body: dict[str, Any]) -> None:
        self.seen.append(("submit", body))
        await ack(**self.answer)

    async def on_closed(self, ack: Any, body: dict[str, Any]) -> None:
        self.seen.append(("closed", body))
        await ack()

    async def on_home(self, event: dict[str, Any], client: AsyncWebClient) -> None:
        self.seen.append(("home", event))
        home = {"type": "home", "blocks": [{"type": "section", "text": plain("Nothing is running")}]}
        await client.views_publish(user_id=event["user"], view=home)

    async def on_message(self, event: dict[str, Any]) -> None:
        self.seen.append(("message", event))
