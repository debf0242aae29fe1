"""Short ways to write blocks, and texts to try them with."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=[]), max_size=300)
HOSTILE = st.lists(
    st.sampled_from(
        ["<!channel>", "<@U1>", "<http://x|y>", "\u202e", "\u2066", "\u0000", "\n", "\ud800", "&", "😀", "a"]
    ),
    max_size=40,
).map("".join)


def say(words: str, kind: str = "plain_text") -> dict[str, Any]:
    return {"type": kind, "text": words}


def option(value: str = "v", words: str = "w", **extra: Any) -> dict[str, Any]:
    return {"text": say(words), "value": value, **extra}


def button(action_id: str = "go", **extra: Any) -> dict[str, Any]:
    return {"type": "button", "text": say("Go"), "action_id": action_id, **extra}


def actions(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


def select(count: int = 1, **extra: Any) -> dict[str, Any]:
    return {"type": "static_select", "options": [option(str(n)) for n in range(count)], **extra}


def accessory(element: Any) -> dict[str, Any]:
    return {"type": "section", "text": say("x"), "accessory": element}


def field(element: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"type": "input", "label": say("Label"), "element": element, **extra}


def rows(count: int, width: int = 1, words: str = "x") -> list[list[dict[str, Any]]]:
    return [[{"type": "raw_text", "text": words}] * width for _ in range(count)]


def chart(kind: str = "pie", **extra: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"type": kind}
    if kind == "pie":
        body["segments"] = [{"label": "a", "value": 1}]
    else:
        body["series"] = [{"name": "s", "data": [{"label": "a", "value": 1.5}]}]
        body["axis_config"] = {"categories": ["a"]}
    return {"type": "data_visualization", "title": "T", "chart": {**body, **extra}}


def rich(*elements: dict[str, Any], kind: str = "rich_text_section") -> dict[str, Any]:
    return {"type": "rich_text", "elements": [{"type": kind, "elements": list(elements)}]}


def modal(*blocks: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"type": "modal", "title": say("T"), "submit": say("S"), "blocks": list(blocks), **extra}
