"""Recognize who calls the bot by the first bytes of a request: Slack, a node, a program, or a stranger."""

from __future__ import annotations

from typing import Final

from bot.api.auth_middleware import AGENT, GUARDED, LONGEST_HEADER
from bot.http_connection import plain_answer
from bot.http_shares import KnownTokens, RequestHead, ServerShare, Unsigned
from bot.slack.guard import SMALL, UNSIGNED, Guard

SLACK_PATH: Final = b"/slack/events"
HEALTH_PATHS: Final = frozenset({b"/healthz", b"/readyz"})
#: Answered before the request is parsed.
NOT_SIGNED: Final = plain_answer("401 Unauthorized", UNSIGNED)


class BotCallers:
    """Recognize the callers of the bot. Without a `guard` Slack doesn't call by HTTP."""

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard
        self._tokens = {ServerShare.NODES: KnownTokens(), ServerShare.PROGRAMS: KnownTokens()}

    def share_of(self, head: RequestHead) -> ServerShare | None:
        """Return the share of a call; None where Slack's signature can be checked once the body is there.

        Raises `Unsigned` for what can't be Slack's.
        """
        if self._guard is not None and head.path == SLACK_PATH and head.method == b"POST":
            if not self._guard.is_signed(head.headers):
                raise Unsigned(NOT_SIGNED)
            # What is long, or has no plain length, is read and judged behind the queue of strangers.
            return None if head.body_bytes is not None and head.body_bytes <= SMALL else ServerShare.STRANGERS
        if head.path in HEALTH_PATHS:
            return ServerShare.HEALTH
        share, token = self._claim(head)
        if share is None or not token or len(token) > LONGEST_HEADER:
            return ServerShare.STRANGERS
        return share if token in self._tokens[share] else ServerShare.NEW_TOKENS

    def share_of_body(self, head: RequestHead, body: bytes) -> ServerShare:
        """Return Slack's share for a message that Slack signed. Raises `Unsigned` for any other."""
        if self._guard is None or not self._guard.is_signed(head.headers, body):
            raise Unsigned(NOT_SIGNED)
        return ServerShare.SLACK

    def note_known(self, head: RequestHead) -> None:
        """Remember that the token of this call was accepted."""
        share, token = self._claim(head)
        if share is not None and token:
            self._tokens[share].add(token)

    def _claim(self, head: RequestHead) -> tuple[ServerShare | None, bytes]:
        """Return who a caller claims to be, and the token that should show it."""
        path, token = head.path.decode("latin-1"), head.headers.get(b"authorization", b"")
        if path.startswith(AGENT):
            return ServerShare.NODES, token
        return (ServerShare.PROGRAMS if path.startswith(GUARDED) else None), token
