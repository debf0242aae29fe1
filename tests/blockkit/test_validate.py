"""Messages and views: what Slack takes and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from bot.blockkit import (
    validate_message,
    validate_view,
)
from tests.blockkit.builders import (
    accessory,
    actions,
    button,
    chart,
    field,
    modal,
    option,
    rich,
    rows,
    say,
    select,
)

PICTURE = {"type": "image", "image_url": "https://x.example/i", "alt_text": "i"}
SURE = {"title": say("t"), "text": say("x")}
NOTED = option("a", description=say("d"))
RULE = {"type": "divider"}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "section", "text": say("x" * 3000)},
        {"type": "section", "fields": [say("y" * 2000, "mrkdwn")] * 10},
        {"type": "header", "text": say("h" * 150)},
        {"type": "divider"},
        {"type": "context", "elements": [*[say("c")] * 9, PICTURE]},
        actions(*(button(str(n)) for n in range(25))),
        actions(button(value="v" * 2000, style="primary", url="https://x.example", confirm=SURE)),
        actions(select(100), {"type": "overflow", "action_id": "o", "options": [option(str(n)) for n in range(5)]}),
        actions({"type": "datepicker", "initial_date": "2026-02-28"}, {"type": "timepicker", "initial_time": "23:59"}),
        accessory({"type": "multi_static_select", "options": [option("a")], "initial_options": [option("a")]}),
        accessory({"type": "radio_buttons", "options": [NOTED], "initial_option": NOTED}),
        accessory({"type": "static_select", "option_groups": [{"label": say("g"), "options": [option()]}]}),
        {"type": "image", "image_url": "https://x.example/i.png", "alt_text": "i", "title": say("t")},
        {"type": "image", "slack_file": {"id": "F1"}, "alt_text": "i"},
        {"type": "table", "rows": rows(100, 20, "12345"), "column_settings": [{"align": "right"}, None]},
        {"type": "table", "rows": [[rich({"type": "text", "text": "x"})]]},
        {"type": "data_table", "caption": "c", "rows": rows(201, 2), "page_size": 20},
        {"type": "data_table", "caption": say("c"), "rows": rows(2)},
        chart(),
        chart("bar"),
        chart("line"),
        chart("area"),
        {"type": "markdown", "text": "# hi"},
        {"type": "container", "title": say("t"), "child_blocks": [{"type": "divider"}] * 10, "is_collapsible": True},
        {"type": "container", "rich_text_title": rich({"type": "emoji", "name": "x"}), "child_blocks": [RULE]},
        rich({"type": "link", "url": "https://x.example", "text": "x"}, {"type": "user", "user_id": "U1"}),
        {"type": "rich_text", "elements": [{"type": "rich_text_list", "style": "bullet", "elements": [
            {"type": "rich_text_section", "elements": [{"type": "text", "text": "x"}]}]}]},
    ],
)  # fmt: skip
def test_a_good_block_passes(block: dict[str, Any]) -> None:
    assert validate_message({"text": "x", "blocks": [block]}) == []


TWO_PRIMARY = actions(button("a", style="primary"), button("b", style="primary"))
CONFIRM = {"title": say("t" * 101), "text": say("x"), "confirm": say("c" * 31)}


@pytest.mark.parametrize(
    ("block", "error"),
    [
        ("words", "must be an object [json-pointer:/blocks/0]"),
        ({"type": "card"}, "unsupported type: card [json-pointer:/blocks/0/type]"),
        ({"type": ["section"]}, "unsupported type"),
        ({"type": "section"}, "must have text or fields [json-pointer:/blocks/0]"),
        ({"type": "section", "text": say("")}, "must be more than 0 characters [json-pointer:/blocks/0/text/text]"),
        ({"type": "section", "text": say("x" * 3001)}, "must be less than 3001 characters"),
        ({"type": "section", "text": say("&" * 601)}, "must be less than 3001 characters"),
        ({"type": "section", "text": say("😀" * 1501)}, "must be less than 3001 characters"),
        ({"type": "section", "text": "words"}, "must be an object"),
        ({"type": "section", "text": say("x", "html")}, "must be a plain_text or mrkdwn object"),
        ({"type": "section", "text": {"type": "mrkdwn"}}, "missing required field [json-pointer:/blocks/0/text/text]"),
        ({"type": "section", "text": {"type": "mrkdwn", "text": 5}}, "must be a string"),
        ({"type": "section", "text": say("\ud800")}, "surrogates"),
        ({"type": "section", "fields": [say("x")] * 11}, "no more than 10 items allowed"),
        ({"type": "section", "fields": [say("x" * 2001)]}, "must be less than 2001 characters"),
        ({"type": "section", "text": say("x"), "fields": "many"}, "must be an array"),
        ({"type": "header", "text": say("x", "mrkdwn")}, "must be a plain_text object"),
        ({"type": "header", "text": say("x" * 151)}, "must be less than 151 characters"),
        ({"type": "header"}, "missing required field [json-pointer:/blocks/0/text]"),
        ({"type": "divider", "block_id": "b" * 256}, "must be less than 256 characters"),
        ({"type": "divider", "block_id": 5}, "must be a string"),
        ({"type": "context", "elements": []}, "no fewer than 1 items allowed"),
        ({"type": "context"}, "missing required field"),
        ({"type": "context", "elements": [say("x")] * 11}, "no more than 10 items allowed"),
        (actions(*(button(str(n)) for n in range(26))), "no more than 25 items allowed"),
        (actions(button("a"), button("a")), "action_id must be unique within an actions block: a"),
        (TWO_PRIMARY, "no more than one primary button"),
        (
            actions({"type": "multi_static_select", "options": [option()]}),
            "unsupported element type: multi_static_select",
        ),
        (actions({"type": "plain_text_input"}), "unsupported element type"),
        ({"type": "actions", "elements": ["go"]}, "must be an object"),
        (actions(button(value="v" * 2001)), "must be less than 2001 characters"),
        (actions(button(text=say("x" * 76))), "must be less than 76 characters"),
        (actions(button(text=say("x", "mrkdwn"))), "must be a plain_text object"),
        (actions(button(style="loud")), "must be one of primary, danger"),
        (actions(button(url="javascript:alert(1)")), "must be an http or https URL"),
        (actions(button("a" * 256)), "must be less than 256 characters"),
        (actions(button(confirm=CONFIRM)), "confirm/title/text"),
        (actions(button(confirm="sure?")), "must be an object"),
        (actions(button(accessibility_label="x" * 76)), "must be less than 76 characters"),
        (actions(select(0)), "no fewer than 1 items allowed"),
        (actions(select(101)), "no more than 100 items allowed"),
        (actions(select(initial_option=option("other"))), "initial option must be one of the options"),
        (actions(select(placeholder=say("x" * 151))), "must be less than 151 characters"),
        (actions(select(option_groups=[])), "must have either options or option_groups"),
        (accessory({"type": "static_select", "option_groups": ["x"]}), "must be an object"),
        (accessory({"type": "static_select", "options": ["x"]}), "must be an object"),
        (accessory({"type": "static_select", "options": [option(words="x" * 76)]}), "must be less than 76 characters"),
        (accessory({"type": "static_select", "options": [option("v" * 151)]}), "must be less than 151 characters"),
        (accessory({"type": "static_select", "options": [{"text": say("x")}]}), "missing required field"),
        (accessory({"type": "checkboxes", "options": [option(str(n)) for n in range(11)]}), "no more than 10 items"),
        (accessory({"type": "overflow", "options": [option(str(n)) for n in range(6)]}), "no more than 5 items"),
        (accessory({"type": "datepicker", "initial_date": "2026-02-30"}), "YYYY-MM-DD"),
        (accessory({"type": "datepicker", "initial_date": 5}), "YYYY-MM-DD"),
        (accessory({"type": "timepicker", "initial_time": "24:00"}), "HH:MM"),
        (accessory({"type": "image", "alt_text": "x"}), "missing required field"),
        (accessory({"type": "image", "alt_text": "x", "slack_file": "F1"}), "must be an object"),
        (accessory("x"), "must be an object"),
        ({"type": "image", "image_url": "https://x.example"}, "alt_text"),
        (
            {"type": "image", "image_url": "https://x.example", "alt_text": "a", "title": say("t", "mrkdwn")},
            "plain_text",
        ),
        (field({"type": "button", "text": say("x")}), "unsupported element type: button"),
        ({"type": "input", "label": say("x")}, "missing required field [json-pointer:/blocks/0/element]"),
        (field({"type": "plain_text_input", "max_length": 3001}), "must be an integer from 1 to 3000"),
        (field({"type": "plain_text_input", "min_length": True}), "must be an integer from 0 to 3000"),
        (field({"type": "number_input"}), "is_decimal_allowed"),
        (field({"type": "number_input", "is_decimal_allowed": True, "min_value": 5}), "must be a string"),
        (field({"type": "plain_text_input"}, label=say("x", "mrkdwn")), "must be a plain_text object"),
        (field({"type": "plain_text_input"}, hint=say("x" * 2001)), "must be less than 2001 characters"),
        ({"type": "rich_text", "elements": ["x"]}, "must be an object"),
        ({"type": "rich_text", "elements": [{"type": "text"}]}, "unsupported rich text type: text"),
        (rich({"type": "video"}), "unsupported rich text type: video"),
        ({"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [1]}]}, "must be an object"),
        (rich({"type": "text"}), "missing required field"),
        (rich({"type": "link", "url": "ftp://x"}), "http or https"),
        ({"type": "table", "rows": []}, "no fewer than 1 items"),
        ({"type": "table", "rows": rows(101)}, "no more than 100 items"),
        ({"type": "table", "rows": rows(1, 21)}, "no more than 20 items"),
        ({"type": "table", "rows": rows(4, 1, "x" * 2600)}, "no more than 10000 characters allowed in all cells"),
        ({"type": "table", "rows": [["x"]]}, "must be an object"),
        ({"type": "table", "rows": [[{"type": "raw_number", "value": 1}]]}, "unsupported cell type: raw_number"),
        (
            {"type": "table", "rows": rows(1), "column_settings": [{"align": "up"}]},
            "must be one of left, center, right",
        ),
        ({"type": "table", "rows": rows(1), "column_settings": ["x"]}, "must be an object"),
        ({"type": "data_table", "caption": "c", "rows": rows(1)}, "no fewer than 2 items"),
        ({"type": "data_table", "rows": rows(2)}, "caption"),
        ({"type": "data_table", "caption": "c", "rows": rows(202)}, "no more than 201 items"),
        ({"type": "data_table", "caption": "c", "rows": rows(8, 1, "x" * 2600)}, "no more than 20000 characters"),
        ({"type": "data_table", "caption": "c", "rows": rows(2), "page_size": 0}, "from 1 to 100"),
        ({"type": "data_visualization", "title": "T", "chart": 5}, "must be an object"),
        ({**chart(), "title": "t" * 51}, "must be less than 51 characters"),
        (chart("radar"), "unsupported chart type: radar"),
        (chart(segments=[]), "no fewer than 1 items"),
        (chart(segments=["x"]), "must be an object"),
        (chart(segments=[{"label": "l" * 21, "value": 1}]), "must be less than 21 characters"),
        (chart(segments=[{"label": "a", "value": "1"}]), "must be a number"),
        (chart("bar", axis_config={"categories": ["b"]}), "one data point per category"),
        (chart("bar", axis_config="x"), "must be an object"),
        (chart("bar", series=["x"]), "must be an object"),
        (chart("bar", series=chart("bar")["chart"]["series"] * 2), "series names must be unique"),
        ({"type": "markdown", "text": "x" * 12_001}, "must be less than 12001 characters"),
        ({"type": "container", "child_blocks": [{"type": "divider"}]}, "missing required field"),
        ({"type": "container", "title": say("t"), "child_blocks": []}, "no fewer than 1 items"),
        ({"type": "container", "title": say("t"), "child_blocks": [{"type": "divider"}] * 11}, "no more than 10 items"),
        (
            {"type": "container", "title": say("t"), "child_blocks": [{"type": "container"}]},
            "unsupported type: container",
        ),
        ({"type": "container", "rich_text_title": 5, "child_blocks": [{"type": "divider"}]}, "must be an object"),
        (
            {"type": "container", "title": say("t"), "child_blocks": [{"type": "divider"}], "default_collapsed": True},
            "default_collapsed needs is_collapsible",
        ),
        (
            {
                "type": "container",
                "title": say("t"),
                "child_blocks": [{"type": "divider"}],
                "is_collapsible": True,
                "has_header_divider": True,
            },
            "has_header_divider cannot be set",
        ),
    ],
)
def test_a_bad_block_is_refused(block: Any, error: str) -> None:
    errors = validate_message({"text": "x", "blocks": [block]})
    assert any(error in found for found in errors), errors


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({}, "no_text"),
        ({"text": "", "blocks": []}, "no_text"),
        ({"text": 5}, "must be a string"),
        ({"text": "x" * 4001}, "must be less than 4001 characters [json-pointer:/text]"),
        ({"text": "x", "blocks": "many"}, "must be an array [json-pointer:/blocks]"),
        ({"text": "x", "blocks": [{"type": "divider"}] * 51}, "no more than 50 items allowed [json-pointer:/blocks]"),
        ({"text": "x", "blocks": [{"type": "divider", "block_id": "a"}] * 2}, "block_id must be unique: a"),
        ({"text": "x", "blocks": [chart()] * 3}, "no more than 2 data_visualization blocks allowed"),
        ({"text": "x", "attachments": [{}] * 101}, "no more than 100 items"),
        ({"text": "x", "attachments": ["x"]}, "must be an object [json-pointer:/attachments/0]"),
        ({"text": "x", "attachments": [{"blocks": [{"type": "?"}]}]}, "[json-pointer:/attachments/0/blocks/0/type]"),
    ],
)
def test_a_bad_message_is_refused(message: dict[str, Any], error: str) -> None:
    assert any(error in found for found in validate_message(message))


INPUT = field({"type": "plain_text_input"})


def test_good_views_pass() -> None:
    assert validate_view(modal(INPUT, close=say("Cancel"), private_metadata="p" * 3000)) == []
    assert validate_view({"type": "home", "blocks": [{"type": "divider"}] * 100}) == []


@pytest.mark.parametrize(
    ("view", "error"),
    [
        ({"type": "modal", "title": say("T"), "blocks": [INPUT]}, "submit is required"),
        (modal(title=say("t" * 25)), "must be less than 25 characters [json-pointer:/title/text]"),
        (modal(title=say("t", "mrkdwn")), "must be a plain_text object"),
        (modal(title=None), "missing required field [json-pointer:/title]"),
        (modal(submit=say("s" * 25)), "/submit/text"),
        (modal(close=say("c" * 25)), "/close/text"),
        (modal(private_metadata="p" * 3001), "/private_metadata"),
        (modal(callback_id="c" * 256), "/callback_id"),
        (modal(external_id="c" * 256), "/external_id"),
        (modal(*[{"type": "divider"}] * 101), "no more than 100 items allowed"),
        ({"type": "modal", "title": say("T")}, "missing required field [json-pointer:/blocks]"),
        ({"type": "window", "blocks": []}, "must be one of modal, home"),
        ({"type": "home", "blocks": [{"type": "markdown", "text": "x" * 12_000}] * 21}, "view_too_large"),
    ],
)
def test_a_bad_view_is_refused(view: dict[str, Any], error: str) -> None:
    assert any(error in found for found in validate_view(view))
