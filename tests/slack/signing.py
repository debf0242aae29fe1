"""Signing as Slack does it, written apart from the code under test, and bodies to sign."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any
from urllib.parse import urlencode

import httpx

from ledger.kernel.clock import Clock

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
FORM = "application/x-www-form-urlencoded"


def signature(body: bytes, stamp: str, secret: str = SECRET) -> str:
    """The v0 signature of any bytes; Slack's own library signs text only."""
    return "v0=" + hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()


def headers(body: bytes, clock: Clock, *, content_type: str = FORM, age_s: int = 0) -> dict[str, str]:
    """The headers of a signed request that is `age_s` old."""
    stamp = str(int(clock.now().timestamp()) - age_s)
    return {
        "content-type": content_type,
        "x-slack-request-timestamp": stamp,
        "x-slack-signature": signature(body, stamp),
    }


def command_body(text: str, *, user: str = "U0ALICE", channel: str = "C0GPU", **more: str) -> bytes:
    """A slash command."""
    form = {
        "token": "verification-token",
        "team_id": "T0PRACTICE",
        "channel_id": channel,
        "user_id": user,
        "command": "/gpu",
        "text": text,
        "response_url": "https://hooks.slack.com/commands/T0/1/secret",
        "trigger_id": "1.2.3",
        **more,
    }
    return urlencode(form).encode()


def payload_body(payload: dict[str, Any]) -> bytes:
    """An interaction."""
    return urlencode({"payload": json.dumps(payload)}).encode()


async def post(app: Any, body: bytes, sent: Any) -> httpx.Response:
    """POST to an ASGI app; a failing app raises here, which is what a 500 would be."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
        return await client.post("/slack/events", content=body, headers=sent)
