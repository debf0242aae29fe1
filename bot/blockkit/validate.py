"""Check whether Slack would accept a message or a view.

Limits: Slack's reference pages for blocks, views and chat.postMessage. An empty list means yes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from bot.blockkit.blocks import check_blocks
from bot.blockkit.checker import ID_MAX, PLAIN, Checker

MESSAGE_BLOCKS_MAX: Final = 50
VIEW_BLOCKS_MAX: Final = 100
UPDATE_TEXT_MAX: Final = 4_000
ATTACHMENTS_MAX: Final = 100
VIEW_TITLE_MAX: Final = 24
PRIVATE_METADATA_MAX: Final = 3000
VIEW_BYTES_MAX: Final = 250_000


def validate_message(payload: Mapping[str, Any]) -> list[str]:
    """List Slack's errors for `{"text": …, "blocks": […]}`; other fields, such as `channel`, are not checked.

    Text above 4,000 characters is an error too: chat.postMessage would split it and chat.update refuse it.
    """
    check = Checker("message")
    text = payload.get("text")
    blocks = payload.get("blocks")
    attachments = payload.get("attachments")
    check.string(text, "/text", UPDATE_TEXT_MAX, low=0)
    if not (text or blocks or attachments):
        check.fail("no_text: a message needs text or blocks", "")
    if blocks is not None:
        check_blocks(check, blocks, "/blocks", MESSAGE_BLOCKS_MAX)
    if attachments is not None:
        for value, where in check.items(attachments, "/attachments", 0, ATTACHMENTS_MAX):
            attachment = check.mapping(value, where)
            if attachment is not None and "blocks" in attachment:
                check_blocks(check, attachment["blocks"], f"{where}/blocks", MESSAGE_BLOCKS_MAX)
    return check.errors


def validate_view(view: Mapping[str, Any]) -> list[str]:
    """List Slack's errors for a modal or a home tab."""
    kind = view.get("type")
    check = Checker(str(kind))
    check.string(view.get("callback_id"), "/callback_id", ID_MAX, low=0)
    check.string(view.get("external_id"), "/external_id", ID_MAX, low=0)
    check.string(view.get("private_metadata"), "/private_metadata", PRIVATE_METADATA_MAX, low=0)
    if view.get("blocks") is None:
        check.fail("missing required field", "/blocks")
    else:
        check_blocks(check, view["blocks"], "/blocks", VIEW_BLOCKS_MAX)
    if kind == "modal":
        _modal(check, view)
    elif kind != "home":
        check.fail("must be one of modal, home", "/type")
    if len(json.dumps(view, default=str)) > VIEW_BYTES_MAX:
        check.fail(f"view_too_large: no more than {VIEW_BYTES_MAX} bytes allowed", "")
    return check.errors


def _modal(check: Checker, view: Mapping[str, Any]) -> None:
    check.text(view.get("title"), "/title", VIEW_TITLE_MAX, only=PLAIN)
    for key in ("submit", "close"):
        check.text(view.get(key), f"/{key}", VIEW_TITLE_MAX, only=PLAIN, required=False)
    if check.has_input and view.get("submit") is None:
        check.fail("submit is required when there is an input block", "/submit")
