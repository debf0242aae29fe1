"""Cutting a message to fit before a real send."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bot.blockkit import (
    mrkdwn,
    truncate_message,
    validate_message,
)
from tests.blockkit.builders import (
    ANY_TEXT,
    actions,
    button,
    say,
    select,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["section", "plain_text", "actions"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "text", "elements", "fields", "block_id", "accessory"]), inner, max_size=4
        )
    ),
    max_leaves=15,
)


@given(st.fixed_dictionaries({"text": ANY_TEXT | st.none()}, optional={"blocks": JSON | st.lists(JSON, max_size=5)}))
def test_whatever_comes_in_something_valid_comes_out(payload: dict[str, Any]) -> None:
    assert validate_message(truncate_message(payload)) == []


def test_a_fitting_message_stays_as_it_is() -> None:
    message = {"channel": "C1", "text": "x", "blocks": [{"type": "section", "text": mrkdwn("*x*")}]}
    assert truncate_message(message) == message
    cleared = {"text": "x", "blocks": []}
    assert truncate_message(cleared) == cleared


def test_long_texts_are_cut_without_breaking_markup() -> None:
    link = "y" * 2990 + "<https://x.example/a|a link>"
    message = {
        "text": "x" * 3995 + "&amp;&amp;",
        "blocks": [
            {"type": "section", "text": mrkdwn(link), "fields": [mrkdwn("f" * 2500)] * 12},
            {"type": "header", "text": say("&" * 200)},
            {"type": "context", "elements": [mrkdwn("c" * 4000)]},
            actions(button(text=say("b" * 100)), select()),
            {"type": "image", "alt_text": "no address"},
        ],
    }
    short = truncate_message(message)
    assert validate_message(short) == []
    assert [block["type"] for block in short["blocks"]] == ["section", "header", "context", "actions"]
    assert short["text"].endswith("x…")
    assert short["blocks"][0]["text"]["text"] == "y" * 2990 + "…"
    assert len(short["blocks"][0]["fields"]) == 10
    assert short["blocks"][3]["elements"][0]["text"]["text"] == "b" * 74 + "…"


def test_too_many_blocks_leave_the_headers_and_buttons() -> None:
    many = [{"type": "header", "text": say("H")}, *[{"type": "divider"}] * 60, actions(button())]
    kept = truncate_message({"text": "x", "blocks": many})["blocks"]
    assert len(kept) == 50
    assert [kept[0]["type"], kept[-2]["type"], kept[-1]["type"]] == ["header", "actions", "context"]


def test_when_the_rest_cannot_stand_together_the_text_stays() -> None:
    twins = [{"type": "divider"}] * 50 + [
        actions(button()) | {"block_id": "twin"},
        actions(button()) | {"block_id": "twin"},
    ]
    assert "blocks" not in truncate_message({"text": "x", "blocks": twins})
    assert truncate_message({"text": "", "blocks": [{"type": "?"}]}) == {"text": "…"}
