"""Answers through a response_url: five posts within thirty minutes, seen by one person unless said otherwise."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from bot.practice import messages
from bot.practice.model import ApiError, ChatMessage, Json, ResponseUrl
from bot.practice.workspace import Workspace

POSTS_MAX: Final = 5
LIFETIME: Final = timedelta(minutes=30)


def respond(workspace: Workspace, token: str, body: Json) -> Json:
    """One post to a response_url. Raises `ApiError` with `http_status`."""
    right = workspace.response_urls.get(token)
    if right is None:
        raise ApiError("invalid_url", http_status=404)
    if workspace.clock.now() - right.at > LIFETIME:
        raise ApiError("expired_url", http_status=404)
    if right.posts >= POSTS_MAX:
        raise ApiError("used_url", http_status=404)
    right.posts += 1
    apply_response(workspace, right, body)
    return {}


def apply_response(workspace: Workspace, right: ResponseUrl, body: Json) -> ChatMessage | None:
    """Post, replace or delete as `body` asks. Raises `ApiError`."""
    original = _original(workspace, right)
    if _flag(body, "delete_original"):
        if original is None:
            raise ApiError("message_not_found", http_status=404)
        messages.delete(workspace, original)
        return None
    if _flag(body, "replace_original") and original is not None:
        return messages.edit(workspace, original, body)
    content = messages.checked_content(body)
    channel = workspace.channels[right.channel]
    reader = None if body.get("response_type") == "in_channel" else right.user
    thread = str(body["thread_ts"]) if body.get("thread_ts") else None
    return messages.post(workspace, channel, content, ephemeral_to=reader, thread_ts=thread)


def _original(workspace: Workspace, right: ResponseUrl) -> ChatMessage | None:
    if right.message_ts is None:
        return None
    message = workspace.find_message(right.channel, right.message_ts)
    return None if message is None or message.deleted else message


def _flag(body: Json, name: str) -> bool:
    value: Any = body.get(name)
    return value is True or str(value).lower() == "true"
