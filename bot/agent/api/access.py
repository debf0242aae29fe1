"""Let in only callers with the token whose hash stands in the newest signed message."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Receive, Scope, Send

from bot.agent.api.problems import ApiRefusal, answer
from bot.agent.deadline import Deadline, Signed

NOBODY = ApiRefusal(
    401,
    "This API needs the token of the session: gpu-shopper session token ID shows it. Send it as Authorization: Bearer.",
    # The connection closes, because a caller without a token could keep it busy with a body without an end.
    {"WWW-Authenticate": "Bearer", "Connection": "close"},
)


@dataclass
class Access:
    """Who may call, and until when the machine runs, from messages whose signature was checked here."""

    deadline: Deadline
    token_sha256: str = field(default="", repr=False)

    def accept(self, found: Signed) -> bool:
        """Take over a newer signed message; with no hash in it nobody may call."""
        if not self.deadline.accept(found):
            return False
        said = json.loads(found.message).get("api_token_sha256")
        self.token_sha256 = said if isinstance(said, str) and said.isascii() else ""
        return True

    def is_let_in(self, authorization: str) -> bool:
        """Whether the header's token is the one; compared in constant time."""
        kind, _, token = authorization.partition(" ")
        shown = hashlib.sha256(token.strip().encode(errors="replace")).hexdigest()
        return hmac.compare_digest(shown, self.token_sha256.lower()) and kind.lower() == "bearer"


@dataclass(frozen=True)
class TokenCheck:
    """Refuse a call before anything of it is read."""

    app: ASGIApp
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, or answer 401."""
        if scope["type"] == "http":
            shown = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
            if len(shown) != 1 or not self.access.is_let_in(shown[0]):
                await answer(NOBODY)(scope, receive, send)
                return
        await self.app(scope, receive, send)
