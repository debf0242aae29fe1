"""The last resort before a real send: a message that is too big is cut, so that people read something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bot.blockkit.blocks import FIELD_TEXT_MAX, FIELDS_MAX, HEADER_MAX
from bot.blockkit.elements import BUTTON_TEXT_MAX
from bot.blockkit.text import ELLIPSIS, SECTION_TEXT_MAX, plain, shorten
from bot.blockkit.validate import MESSAGE_BLOCKS_MAX, UPDATE_TEXT_MAX, validate_message

# Blocks that people act on are worth more than the ones they read.
_KEPT_FIRST: Final = ("header", "actions")
_NOTE: Final = "Some of this message was left out because it was too long."


def truncate_message(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `payload` that `validate_message` accepts.

    Texts are cut with "…", surplus blocks give way to a note while headers and buttons stay, and a block that is
    wrong in any other way is dropped. Without a usable block the text alone remains.
    """
    result = dict(payload)
    text = result.get("text")
    text = _cut(text if isinstance(text, str) and text else ELLIPSIS, UPDATE_TEXT_MAX)
    result["text"] = text
    result.pop("attachments", None)
    blocks = result.pop("blocks", None)
    if isinstance(blocks, list | tuple):
        fitting = _fewer(_valid([_shorten(block) for block in blocks]))
        if (fitting or not blocks) and not validate_message({"text": text, "blocks": fitting}):
            result["blocks"] = fitting
    return result


def _cut(text: str, limit: int) -> str:
    # An entity cut in half would show as text, so a dangling one goes as well.
    text = "".join(c for c in text if not 0xD800 <= ord(c) <= 0xDFFF) or ELLIPSIS
    short = shorten(text, limit, escaped=False)
    if short == text:
        return text
    head = short.removesuffix(ELLIPSIS)
    for opening, closing in (("<", ">"), ("&", ";")):
        start = head.rfind(opening)
        if start > head.rfind(closing):
            head = head[:start]
    return head.rstrip() + ELLIPSIS


def _shorten_text(value: Any, limit: int) -> Any:
    if not isinstance(value, Mapping) or not isinstance(value.get("text"), str):
        return value
    if value.get("type") == "plain_text":
        return {**value, **plain(value["text"] or ELLIPSIS, limit), "emoji": value.get("emoji", False)}
    return {**value, "text": _cut(value["text"] or ELLIPSIS, limit)}


def _shorten(block: Any) -> Any:
    if not isinstance(block, Mapping):
        return block
    result = dict(block)
    kind = result.get("type")
    if kind == "section":
        result["text"] = _shorten_text(result.get("text"), SECTION_TEXT_MAX)
        if result["text"] is None:
            del result["text"]
        if isinstance(result.get("fields"), list | tuple):
            result["fields"] = [_shorten_text(field, FIELD_TEXT_MAX) for field in result["fields"][:FIELDS_MAX]]
    elif kind == "header":
        result["text"] = _shorten_text(result.get("text"), HEADER_MAX)
    elif kind == "context" and isinstance(result.get("elements"), list | tuple):
        result["elements"] = [_shorten_text(element, SECTION_TEXT_MAX) for element in result["elements"]]
    elif kind == "actions" and isinstance(result.get("elements"), list | tuple):
        result["elements"] = [_shorten_button(element) for element in result["elements"]]
    return result


def _shorten_button(element: Any) -> Any:
    if not isinstance(element, Mapping) or element.get("type") != "button":
        return element
    return {**element, "text": _shorten_text(element.get("text"), BUTTON_TEXT_MAX)}


def _valid(blocks: list[Any]) -> list[Any]:
    """The blocks that can stand together; each is tried beside the ones already kept."""
    kept: list[Any] = []
    for block in blocks:
        room = len(kept) < MESSAGE_BLOCKS_MAX
        errors = validate_message({"text": ELLIPSIS, "blocks": [*kept, block] if room else [block]})
        if not errors:
            kept.append(block)
    return kept


def _fewer(blocks: list[Any]) -> list[Any]:
    if len(blocks) <= MESSAGE_BLOCKS_MAX:
        return blocks
    room = MESSAGE_BLOCKS_MAX - 1
    chosen = {i for i, block in enumerate(blocks) if block["type"] in _KEPT_FIRST}
    chosen = set(sorted(chosen)[:room])
    for index in range(len(blocks)):
        if len(chosen) >= room:
            break
        chosen.add(index)
    note = {"type": "context", "elements": [plain(_NOTE)]}
    return [*(blocks[i] for i in sorted(chosen)), note]
