"""Post, edit and delete messages, with the checks of the real platform."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

from bot.blockkit import validate_message
from bot.practice.model import BOT_ID, BOT_USER_ID, SLACKBOT_ID, ApiError, Channel, ChatMessage, Json, invalid_arguments
from bot.practice.workspace import Workspace

UPDATE_TEXT_MAX: Final = 4_000
POST_TEXT_MAX: Final = 40_000
INTERACTIVE: Final = frozenset(
    {
        "button", "static_select", "multi_static_select", "users_select", "multi_users_select", "conversations_select",
        "channels_select", "overflow", "radio_buttons", "checkboxes", "datepicker", "timepicker", "plain_text_input",
        "number_input",
    }
)  # fmt: skip


def parse_json_argument(value: Any, name: str) -> Any:
    """Parse an argument that may be JSON or a string of JSON. Raises `ApiError` for a broken string."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value else None
    except ValueError:
        raise ApiError(f"invalid_{name}_format" if name == "blocks" else "invalid_arguments") from None


def named_blocks(blocks: list[Json]) -> list[Json]:
    """Copy the blocks, each with a block_id and each interactive element with an action_id, as Slack does."""
    result = copy.deepcopy(blocks)
    for block in result:
        block.setdefault("block_id", secrets.token_hex(3))
        for element in elements_of(block):
            if element.get("type") in INTERACTIVE:
                element.setdefault("action_id", secrets.token_hex(3))
        if block.get("type") == "container":
            block["child_blocks"] = named_blocks(block.get("child_blocks", []))
    return result


def elements_of(block: Mapping[str, Any]) -> list[Json]:
    """List the elements of one block that a person can act on or fill in."""
    kind = block.get("type")
    if kind == "actions":
        return list(block.get("elements", ()))
    if kind == "section" and block.get("accessory"):
        return [block["accessory"]]
    if kind == "input" and block.get("element"):
        return [block["element"]]
    return []


def flat_blocks(blocks: list[Json]) -> list[Json]:
    """List all blocks, those inside containers too, in reading order."""
    result: list[Json] = []
    for block in blocks:
        result.append(block)
        if block.get("type") == "container":
            result.extend(flat_blocks(block.get("child_blocks", [])))
    return result


def checked_content(arguments: Mapping[str, Any]) -> Json:
    """Return `{"text", "blocks", "attachments"}` of a message after every check. Raises `ApiError`."""
    text = arguments.get("text") or ""
    blocks = parse_json_argument(arguments.get("blocks"), "blocks")
    attachments = parse_json_argument(arguments.get("attachments"), "attachments")
    if not isinstance(text, str):
        raise invalid_arguments(["must be a string [json-pointer:/text]"])
    if not (text or blocks or attachments):
        raise ApiError("no_text")
    if len(text) > POST_TEXT_MAX:
        raise ApiError("msg_too_long")
    errors = validate_message({"text": "-", "blocks": blocks or [], "attachments": attachments or []})
    if errors:
        raise invalid_arguments(errors, "invalid_blocks", errors=errors)
    return {"text": text, "blocks": named_blocks(blocks or []), "attachments": list(attachments or [])}


def post(
    workspace: Workspace,
    channel: Channel,
    content: Json,
    *,
    user: str = BOT_USER_ID,
    thread_ts: str | None = None,
    ephemeral_to: str | None = None,
    metadata: Json | None = None,
    subtype: str | None = None,
) -> ChatMessage:
    """Add one message. A thread_ts without a message here is refused as Slack does. Raises `ApiError`."""
    if thread_ts is not None and workspace.find_message(channel.id, thread_ts) is None:
        raise ApiError("thread_not_found")
    if user == BOT_USER_ID and not ephemeral_to:
        workspace.limits.post(channel.id)
    is_app = user == BOT_USER_ID
    message = ChatMessage(
        ts=workspace.next_ts(),
        channel=channel.id,
        user=user,
        thread_ts=thread_ts,
        bot_id=BOT_ID if is_app else None,
        ephemeral_to=ephemeral_to,
        subtype=subtype,
        metadata=copy.deepcopy(metadata),
        **content,
    )
    workspace.messages.append(message)
    workspace.changed()
    return message


def notice(workspace: Workspace, channel_id: str, user_id: str, text: str) -> ChatMessage:
    """Post the platform's own notice to one person, such as that the app did not answer in time."""
    channel = workspace.channels[channel_id]
    content: Json = {"text": text, "blocks": [], "attachments": []}
    return post(workspace, channel, content, user=SLACKBOT_ID, ephemeral_to=user_id, subtype="notice")


def edit(
    workspace: Workspace, message: ChatMessage, arguments: Mapping[str, Any], *, marks_edited: bool = True
) -> ChatMessage:
    """Edit a message. Without `blocks` the old ones stay, an empty list clears them. Raises `ApiError`."""
    text = arguments.get("text")
    if isinstance(text, str) and len(text) > UPDATE_TEXT_MAX:
        raise ApiError("msg_too_long")
    given_blocks = parse_json_argument(arguments.get("blocks"), "blocks")
    content = checked_content({**arguments, "blocks": given_blocks or None})
    message.history.append({"text": message.text, "blocks": message.blocks})
    message.version += 1
    if text is not None:
        message.text = content["text"]
    if given_blocks is not None:
        message.blocks = content["blocks"]
    metadata = parse_json_argument(arguments.get("metadata"), "metadata")
    if metadata is not None:
        message.metadata = metadata
    if marks_edited:
        message.edited_ts = workspace.next_ts()
    workspace.changed()
    return message


def delete(workspace: Workspace, message: ChatMessage) -> None:
    """Delete a message; it can still be found as deleted."""
    message.deleted = True
    workspace.changed()


def app_message(workspace: Workspace, channel: Channel, ts: object, *, cannot: str) -> ChatMessage:
    """Find the app's own, living, public message. Raises `ApiError`: `message_not_found`, or `cannot` for another's."""
    message = workspace.find_message(channel.id, ts) if isinstance(ts, str) else None
    if message is None or message.deleted or message.ephemeral_to is not None:
        raise ApiError("message_not_found")
    if message.user != BOT_USER_ID:
        raise ApiError(cannot)
    return message
