"""Answer files.*: upload a file in three steps."""

from __future__ import annotations

import secrets
from typing import Final

from bot.practice import messages
from bot.practice.model import ApiError, Json, UploadedFile, invalid_arguments
from bot.practice.workspace import Workspace

ALT_TEXT_MAX: Final = 1000
NOTHING: Final[Json] = {"blocks": [], "attachments": []}


def upload_url(workspace: Workspace, arguments: Json) -> Json:
    """Answer files.getUploadURLExternal: where to send the bytes."""
    name = str(arguments.get("filename") or "")
    try:
        length = int(arguments.get("length") or 0)
    except ValueError:
        length = 0
    if not name or length <= 0:
        raise invalid_arguments(["filename and length are needed"])
    alt_text = str(arguments.get("alt_txt") or "")
    if len(alt_text) > ALT_TEXT_MAX:
        raise ApiError("alt_txt_too_large")
    file = UploadedFile(workspace.new_id("F0"), name, length, secrets.token_hex(16), alt_text=alt_text)
    workspace.files[file.id] = file
    return {"upload_url": f"{workspace.base_url}/upload/{file.token}", "file_id": file.id}


def receive(workspace: Workspace, token: str, content: bytes) -> bool:
    """Store the bytes of an upload; False for an unknown address or a wrong length."""
    file = next((f for f in workspace.files.values() if f.token == token), None)
    if file is None or file.completed or len(content) != file.length:
        return False
    file.content = content
    return True


def complete_upload(workspace: Workspace, arguments: Json) -> Json:
    """Answer files.completeUploadExternal: share the uploads, once, in `channel_id` or `channels`."""
    asked = messages.parse_json_argument(arguments.get("files"), "files")
    if not isinstance(asked, list) or not asked:
        raise ApiError("invalid_arguments")
    files: list[UploadedFile] = []
    for entry in asked:
        file = workspace.files.get(str(entry.get("id"))) if isinstance(entry, dict) else None
        if file is None or file.completed or not file.content:
            raise ApiError("file_not_found")
        file.name = str(entry.get("title") or file.name)
        files.append(file)
    places = [arguments["channel_id"]] if arguments.get("channel_id") else []
    places += [c for c in str(arguments.get("channels") or "").split(",") if c]
    channels = [workspace.place_for_app(place, posting=True) for place in places]
    shared = [file.to_json(workspace.base_url) for file in files]
    for file in files:
        file.completed = True
    for channel in channels:
        text = str(arguments.get("initial_comment") or "")
        thread = arguments.get("thread_ts")
        message = messages.post(workspace, channel, {"text": text, **NOTHING}, thread_ts=thread or None)
        message.files = shared
    workspace.changed()
    return {"files": shared}
