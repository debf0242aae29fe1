"""Check each block type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bot.blockkit.checker import ID_MAX, PLAIN, Checker
from bot.blockkit.elements import IN_ACTIONS, IN_INPUT, IN_SECTION, check_element, check_image
from bot.blockkit.tables import check_chart, check_data_table, check_rich_text, check_table
from bot.blockkit.text import SECTION_TEXT_MAX

FIELDS_MAX: Final = 10
FIELD_TEXT_MAX: Final = 2000
HEADER_MAX: Final = 150
CONTEXT_ELEMENTS_MAX: Final = 10
ACTIONS_ELEMENTS_MAX: Final = 25
LABEL_MAX: Final = 2000
IMAGE_TITLE_MAX: Final = 2000
CONTAINER_TITLE_MAX: Final = 150
CHILD_BLOCKS_MAX: Final = 10
MARKDOWN_MAX: Final = 12_000

Block = Mapping[str, Any]


def check_blocks(check: Checker, value: Any, pointer: str, high: int) -> None:
    """Check a list of blocks at the top of a message or view."""
    for item, where in check.items(value, pointer, 0, high):
        _block(check, item, where, nested=False)


def _block(check: Checker, value: Any, at: str, *, nested: bool) -> None:
    block = check.mapping(value, at)
    if block is None:
        return
    kind = block.get("type")
    rule = _BLOCKS.get(kind) if isinstance(kind, str) else None
    if rule is None or (nested and kind == "container"):
        check.fail(f"unsupported type: {kind}", f"{at}/type")
        return
    identifier = block.get("block_id")
    check.string(identifier, f"{at}/block_id", ID_MAX)
    if isinstance(identifier, str):
        if identifier in check.block_ids:
            check.fail(f"block_id must be unique: {identifier}", f"{at}/block_id")
        check.block_ids.add(identifier)
    rule(check, block, at)


def _section(check: Checker, block: Block, at: str) -> None:
    if block.get("text") is None and not block.get("fields"):
        check.fail("must have text or fields", at)
    check.text(block.get("text"), f"{at}/text", SECTION_TEXT_MAX, required=False)
    if "fields" in block:
        for value, where in check.items(block["fields"], f"{at}/fields", 1, FIELDS_MAX):
            check.text(value, where, FIELD_TEXT_MAX)
    if "accessory" in block:
        check_element(check, block["accessory"], f"{at}/accessory", IN_SECTION)


def _header(check: Checker, block: Block, at: str) -> None:
    check.text(block.get("text"), f"{at}/text", HEADER_MAX, only=PLAIN)


def _context(check: Checker, block: Block, at: str) -> None:
    for value, where in check.items(block.get("elements"), f"{at}/elements", 1, CONTEXT_ELEMENTS_MAX):
        if isinstance(value, Mapping) and value.get("type") == "image":
            check_image(check, value, where)
        else:
            check.text(value, where, SECTION_TEXT_MAX)


def _divider(check: Checker, block: Block, at: str) -> None:
    """Check a divider, which has no fields of its own."""


def _actions(check: Checker, block: Block, at: str) -> None:
    seen: set[str] = set()
    primary = 0
    for value, where in check.items(block.get("elements"), f"{at}/elements", 1, ACTIONS_ELEMENTS_MAX):
        check_element(check, value, where, IN_ACTIONS)
        if not isinstance(value, Mapping):
            continue
        action = value.get("action_id")
        if isinstance(action, str):
            if action in seen:
                # Slack answers invalid_blocks; the usual client libraries let it through.
                check.fail(f"action_id must be unique within an actions block: {action}", f"{where}/action_id")
            seen.add(action)
        primary += value.get("style") == "primary"
    if primary > 1:
        check.fail("no more than one primary button allowed in an actions block", f"{at}/elements")


def _image(check: Checker, block: Block, at: str) -> None:
    check_image(check, block, at)
    check.text(block.get("title"), f"{at}/title", IMAGE_TITLE_MAX, only=PLAIN, required=False)


def _input(check: Checker, block: Block, at: str) -> None:
    check.has_input = True
    check.text(block.get("label"), f"{at}/label", LABEL_MAX, only=PLAIN)
    check.text(block.get("hint"), f"{at}/hint", LABEL_MAX, only=PLAIN, required=False)
    if block.get("element") is None:
        check.fail("missing required field", f"{at}/element")
    else:
        check_element(check, block["element"], f"{at}/element", IN_INPUT)


def _rich_text(check: Checker, block: Block, at: str) -> None:
    check_rich_text(check, block, at)


def _markdown(check: Checker, block: Block, at: str) -> None:
    check.string(block.get("text"), f"{at}/text", MARKDOWN_MAX, required=True)


def _container(check: Checker, block: Block, at: str) -> None:
    if "rich_text_title" in block:
        title = check.mapping(block["rich_text_title"], f"{at}/rich_text_title")
        if title is not None:
            check_rich_text(check, title, f"{at}/rich_text_title")
    else:
        check.text(block.get("title"), f"{at}/title", CONTAINER_TITLE_MAX, only=PLAIN)
    check.text(block.get("subtitle"), f"{at}/subtitle", CONTAINER_TITLE_MAX, required=False)
    check.choice(block.get("width"), f"{at}/width", ("narrow", "standard", "wide", "full"))
    if block.get("has_header_divider") and block.get("is_collapsible"):
        check.fail("has_header_divider cannot be set when is_collapsible is true", at)
    if block.get("default_collapsed") and not block.get("is_collapsible"):
        check.fail("default_collapsed needs is_collapsible", at)
    for value, where in check.items(block.get("child_blocks"), f"{at}/child_blocks", 1, CHILD_BLOCKS_MAX):
        _block(check, value, where, nested=True)


_BLOCKS: Final[Mapping[str, Callable[[Checker, Block, str], None]]] = {
    "section": _section,
    "header": _header,
    "context": _context,
    "divider": _divider,
    "actions": _actions,
    "image": _image,
    "input": _input,
    "rich_text": _rich_text,
    "table": check_table,
    "data_table": check_data_table,
    "data_visualization": check_chart,
    "container": _container,
    "markdown": _markdown,
}
