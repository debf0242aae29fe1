"""The peer of the ack benchmark: a slack-bolt app that only acknowledges, on the same server and port scheme."""

from __future__ import annotations

import sys

import uvicorn
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


async def _authorize(**_: object) -> AuthorizeResult:
    return AuthorizeResult(
        enterprise_id=None, team_id="T0PRACTICE", bot_token="xoxb-bare", bot_id="B1", bot_user_id="U1"
    )


def build(secret: str) -> Starlette:
    """The whole app: signature check, one command, one ack."""
    app = AsyncApp(signing_secret=secret, authorize=_authorize)

    @app.command("/gpu")
    async def ack_only(ack: AsyncAck) -> None:
        await ack("Asking the clouds…")

    handler = AsyncSlackRequestHandler(app)

    async def endpoint(request: Request) -> Response:
        return await handler.handle(request)

    return Starlette(routes=[Route("/slack/events", endpoint, methods=["POST"])])


if __name__ == "__main__":
    uvicorn.run(build(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
