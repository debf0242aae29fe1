"""Web API: chat.* and reactions.add."""

from __future__ import annotations

from typing import Any

from bot.practice import messages
from bot.practice.model import BOT_USER_ID, ApiError, ChatMessage, Json
from bot.practice.workspace import Workspace


def post_message(workspace: Workspace, arguments: Json) -> Json:
    """chat.postMessage. A user's id as channel opens the direct messages with them."""
    channel = workspace.place_for_app(arguments.get("channel"), posting=True)
    content = messages.checked_content(arguments)
    thread = _thread(arguments)
    metadata = messages.parse_json_argument(arguments.get("metadata"), "metadata")
    message = messages.post(workspace, channel, content, thread_ts=thread, metadata=_metadata(metadata))
    return {"channel": channel.id, "ts": message.ts, "message": message.to_json()}


def _thread(arguments: Json) -> str | None:
    value = arguments.get("thread_ts")
    return str(value) if value else None


def _metadata(value: Any) -> Json | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("event_type"), str):
        raise ApiError("invalid_metadata_format")
    if not isinstance(value.get("event_payload"), dict):
        raise ApiError("invalid_metadata_schema")
    return value


def update(workspace: Workspace, arguments: Json) -> Json:
    """chat.update. Ephemeral and deleted messages are `message_not_found`."""
    channel = workspace.place_for_app(arguments.get("channel"))
    message = messages.app_message(workspace, channel, arguments.get("ts"), cannot="cant_update_message")
    _metadata(messages.parse_json_argument(arguments.get("metadata"), "metadata"))
    messages.edit(workspace, message, arguments)
    return {"channel": channel.id, "ts": message.ts, "text": message.text, "message": message.to_json()}


def delete(workspace: Workspace, arguments: Json) -> Json:
    """chat.delete."""
    channel = workspace.place_for_app(arguments.get("channel"))
    message = messages.app_message(workspace, channel, arguments.get("ts"), cannot="cant_delete_message")
    messages.delete(workspace, message)
    return {"channel": channel.id, "ts": message.ts}


def post_ephemeral(workspace: Workspace, arguments: Json) -> Json:
    """chat.postEphemeral. The reader has to be in the channel."""
    channel = workspace.place_for_app(arguments.get("channel"), posting=True)
    user = arguments.get("user")
    if not isinstance(user, str) or user not in workspace.users:
        raise ApiError("user_not_found" if user else "invalid_arguments")
    if user not in channel.members:
        raise ApiError("user_not_in_channel")
    content = messages.checked_content(arguments)
    message = messages.post(workspace, channel, content, ephemeral_to=user, thread_ts=_thread(arguments))
    return {"message_ts": message.ts}


def permalink(workspace: Workspace, arguments: Json) -> Json:
    """chat.getPermalink."""
    channel = workspace.place_for_app(arguments.get("channel"))
    message = _visible(workspace, channel.id, arguments.get("message_ts"))
    link = f"{workspace.base_url}/#/{channel.id}/p{message.ts.replace('.', '')}"
    return {"channel": channel.id, "permalink": link}


def _visible(workspace: Workspace, channel_id: str, ts: object) -> ChatMessage:
    found = workspace.find_message(channel_id, ts) if isinstance(ts, str) else None
    if found is None or found.deleted or found.ephemeral_to is not None:
        raise ApiError("message_not_found")
    return found


def history(workspace: Workspace, arguments: Json) -> Json:
    """conversations.history: newest first, without thread replies."""
    channel = workspace.place_for_app(arguments.get("channel"))
    if BOT_USER_ID not in channel.members:
        raise ApiError("not_in_channel")
    oldest, latest = str(arguments.get("oldest") or "0"), str(arguments.get("latest") or "9" * 12)
    found = [
        m
        for m in workspace.living(channel.id)
        if m.thread_ts in {None, m.ts} and float(oldest) < float(m.ts) <= float(latest)
    ]
    return _page(found[::-1], arguments)


def replies(workspace: Workspace, arguments: Json) -> Json:
    """conversations.replies: the parent first, then its replies."""
    channel = workspace.place_for_app(arguments.get("channel"))
    ts = arguments.get("ts")
    found = [m for m in workspace.living(channel.id) if ts in {m.ts, m.thread_ts}]
    if not found:
        raise ApiError("thread_not_found")
    return _page(found, arguments)


def _page(found: list[ChatMessage], arguments: Json) -> Json:
    """One page of messages; their metadata come only when they are asked for. The cursor is a place in the list."""
    start, limit = int(arguments.get("cursor") or 0), int(arguments.get("limit") or 100)
    wanted = str(arguments.get("include_all_metadata")).lower() in {"true", "1"}
    page = [m.to_json() for m in found[start : start + limit]]
    for message in page if not wanted else ():
        message.pop("metadata", None)
    more = len(found) > start + limit
    return {
        "messages": page,
        "has_more": more,
        "response_metadata": {"next_cursor": str(start + limit) if more else ""},
    }


def add_reaction(workspace: Workspace, arguments: Json) -> Json:
    """reactions.add."""
    channel = workspace.place_for_app(arguments.get("channel"))
    message = _visible(workspace, channel.id, arguments.get("timestamp"))
    name = str(arguments.get("name") or "").strip(":")
    if not name:
        raise ApiError("invalid_name")
    people = message.reactions.setdefault(name, [])
    if BOT_USER_ID in people:
        raise ApiError("already_reacted")
    people.append(BOT_USER_ID)
    workspace.changed()
    return {}
