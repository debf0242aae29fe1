"""Put the routes of the agent's API together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.agent.api import problems
from bot.agent.api.access import Access, TokenCheck
from bot.agent.api.bodies import json_object
from bot.agent.api.chat import Chat
from bot.agent.api.commands import Commands
from bot.agent.api.description import description
from bot.agent.api.downloads import download
from bot.agent.api.logs import Logs
from bot.agent.api.room import UploadRoom
from bot.agent.api.status import ApiStatus
from bot.agent.api.uploads import upload
from bot.agent.api.workspace import AgentWorkspace
from bot.agent.every_gpu import look
from bot.wire.codec import to_json

COMMAND_BYTES = 1 << 20


@dataclass
class Api:
    """The API of one machine; `folder` is the agent's, and callers reach only files in its workspace."""

    folder: Path
    access: Access
    workspace: AgentWorkspace = field(init=False)
    room: UploadRoom = field(init=False)
    commands: Commands = field(init=False)
    logs: Logs = field(init=False)
    status: ApiStatus = field(init=False)
    chat: Chat = field(init=False)

    def __post_init__(self) -> None:
        """Make the parts."""
        self.workspace = AgentWorkspace(self.folder / "workspace")
        self.workspace.prepare()
        self.room = UploadRoom(self.workspace.root)
        self.commands = Commands(self.folder, self.workspace)
        self.logs = Logs(self.folder, self.commands)
        self.status = ApiStatus(self.folder, look, self.access, self.commands, self.workspace.root)
        self.chat = Chat(self.folder)

    def app(self) -> Starlette:
        """Return the application."""
        prefix = "/node/v1"
        return Starlette(
            routes=[
                Route(f"{prefix}/llm/chat", self.chat.pass_on, methods=["POST"]),
                Route(f"{prefix}/files/upload", self._upload, methods=["POST"]),
                Route(f"{prefix}/files/download/{{path:path}}", self._download, methods=["GET"]),
                Route(f"{prefix}/ml/command", self._command, methods=["POST"]),
                Route(f"{prefix}/status", self._status, methods=["GET"]),
                Route(f"{prefix}/logs", self.logs.send, methods=["GET"]),
                Route(f"{prefix}/openapi.json", _description, methods=["GET"]),
            ],
            middleware=[Middleware(TokenCheck, access=self.access)],
            lifespan=self._lifespan,
            exception_handlers={
                problems.ApiRefusal: problems.refused,
                HTTPException: problems.unknown,
                OSError: problems.out_of_order,
            },
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        self.chat.calls.close()

    async def _upload(self, request: Request) -> Response:
        return await upload(request, self.workspace, self.room)

    async def _download(self, request: Request) -> Response:
        return await download(request, self.workspace)

    async def _command(self, request: Request) -> Response:
        return JSONResponse(to_json(await self.commands.do(await json_object(request, COMMAND_BYTES))))

    async def _status(self, _request: Request) -> Response:
        return JSONResponse(await self.status.answer())


async def _description(_request: Request) -> Response:
    return JSONResponse(description())
