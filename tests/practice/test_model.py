"""The manifest, the inputs, the signal and what a workspace finds by name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.practice.act import NothingToClick, find_element
from bot.practice.inputs import NoSuchField, entry_for, fill_in
from bot.practice.manifest import load_manifest
from bot.practice.messages import named_blocks
from bot.practice.model import ChatMessage, User
from bot.practice.reader import all_text
from bot.practice.signal import Signal
from bot.practice.workspace import LOG_KEPT, Workspace
from tests.practice.echo_app import plain


def options(*values: str) -> list[dict[str, Any]]:
    return [{"text": plain(value.upper()), "value": value} for value in values]


def field(kind: str, **element: Any) -> dict[str, Any]:
    return {
        "type": "input",
        "block_id": f"b_{kind}",
        "label": plain(f"The {kind}"),
        "element": {"type": kind, "action_id": kind, **element},
    }


def test_a_manifest_is_read(manifest: Path) -> None:
    found = load_manifest(manifest)
    assert found.name == "GPU Echo"
    assert found.scopes is not None
    assert "chat:write" in found.scopes
    command = found.command("/gpu")
    assert command is not None
    assert (command.should_escape, "provision" in command.usage_hint) == (True, True)
    assert found.command("/other") is None


def test_without_a_manifest_everything_is_granted(tmp_path: Path) -> None:
    assert load_manifest(tmp_path / "later.yml").scopes is None
    assert load_manifest(None).command("/gpu") is not None
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("[]")
    with pytest.raises(ValueError, match="display_information"):
        load_manifest(wrong)


@pytest.mark.parametrize(
    ("block", "given", "entry"),
    [
        (field("plain_text_input"), "words", {"value": "words"}),
        (field("plain_text_input", initial_value="as before"), ..., {"value": "as before"}),
        (field("number_input", is_decimal_allowed=True), 1.5, {"value": "1.5"}),
        (field("datepicker"), "2026-11-21", {"selected_date": "2026-11-21"}),
        (field("timepicker"), "10:30", {"selected_time": "10:30"}),
        (field("users_select"), "U0BOB", {"selected_user": "U0BOB"}),
        (field("multi_users_select"), ["U0BOB"], {"selected_users": ["U0BOB"]}),
        (field("conversations_select"), "C0GPU", {"selected_conversation": "C0GPU"}),
        (field("channels_select"), "C0GPU", {"selected_channel": "C0GPU"}),
        (field("static_select", options=options("a", "b")), "B", {"selected_option": options("b")[0]}),
        (
            field("static_select", option_groups=[{"label": plain("G"), "options": options("a")}]),
            "a",
            {"selected_option": options("a")[0]},
        ),
        (
            field("radio_buttons", options=options("a"), initial_option=options("a")[0]),
            ...,
            {"selected_option": options("a")[0]},
        ),
        (field("checkboxes", options=options("a", "b")), ["a", "b"], {"selected_options": options("a", "b")}),
        (field("multi_static_select", options=options("a")), "a", {"selected_options": options("a")}),
    ],
)
def test_values_become_state(block: dict[str, Any], given: Any, entry: dict[str, Any]) -> None:
    kind = block["element"]["type"]
    values, complaints = fill_in([block], {} if given is ... else {f"The {kind}": given}, {})
    assert values == {f"b_{kind}": {kind: {"type": kind, **entry}}}
    assert complaints == {}


@pytest.mark.parametrize(
    ("block", "given", "complaint"),
    [
        (field("plain_text_input"), "", "required"),
        (field("plain_text_input", min_length=3), "ab", "at least 3"),
        (field("plain_text_input", max_length=3), "abcd", "at most 3"),
        (field("number_input", is_decimal_allowed=True), "many", "a number"),
        (field("number_input", is_decimal_allowed=True), "NaN", "a number"),
        (field("number_input", is_decimal_allowed=False), "1.5", "whole number"),
        (field("number_input", is_decimal_allowed=True, min_value="2"), "1", "2 or more"),
        (field("number_input", is_decimal_allowed=True, max_value="2"), "3", "2 or less"),
        (field("datepicker"), "tomorrow", "YYYY-MM-DD"),
        (field("static_select", options=options("a")), None, "required"),
        (field("checkboxes", options=options("a")), None, "required"),
        (field("multi_users_select"), None, "required"),
    ],
)
def test_the_platform_complains_itself(block: dict[str, Any], given: Any, complaint: str) -> None:
    kind = block["element"]["type"]
    _, complaints = fill_in([block], {kind: given}, {})
    assert complaint in complaints[f"b_{kind}"]
    _, optional = fill_in([{**block, "optional": True}], {kind: None}, {})
    assert optional == {}


def test_what_was_filled_in_before_stays() -> None:
    block = field("plain_text_input")
    values, _ = fill_in([block], {}, {"b_plain_text_input": {"plain_text_input": {"value": "before"}}})
    assert values["b_plain_text_input"]["plain_text_input"] == {"value": "before"}
    with pytest.raises(NoSuchField, match="'colour'; there are plain_text_input"):
        fill_in([block], {"colour": "red"}, {})
    with pytest.raises(LookupError, match="there are a"):
        entry_for(field("static_select", options=options("a"))["element"], "z")


def test_elements_are_found_by_id_words_or_value_also_in_containers() -> None:
    button = {"type": "button", "action_id": "go", "text": plain("Go on"), "value": "v1"}
    menu = {"type": "overflow", "action_id": "more", "options": options("x", "y")}
    inner = {"type": "actions", "block_id": "i", "elements": [button]}
    accessory = {"type": "section", "block_id": "s", "text": plain("x"), "accessory": menu}
    container = {"type": "container", "title": plain("C"), "child_blocks": [inner]}
    blocks: list[dict[str, Any]] = [container, accessory, {"type": "divider"}]
    for name in ("go", "Go on", "v1"):
        assert find_element(blocks, name)[1] is button
    assert find_element(blocks, "more")[0] is accessory
    with pytest.raises(NothingToClick, match=r"there is go \(Go on\), more \(overflow\)"):
        find_element(blocks, "stop")
    with pytest.raises(NothingToClick):
        find_element(blocks, "go", block_id="s")


def test_missing_ids_are_filled_in() -> None:
    blocks = [
        {"type": "container", "child_blocks": [{"type": "actions", "elements": [{"type": "button"}]}]},
        {"type": "actions", "elements": [{"type": "button"}, {"type": "button", "action_id": "mine"}]},
    ]
    named = named_blocks(blocks)
    assert "block_id" not in blocks[0]
    ids = [named[0]["block_id"], named[0]["child_blocks"][0]["block_id"], named[1]["block_id"]]
    assert len(set(ids)) == 3
    assert named[1]["elements"][1]["action_id"] == "mine"
    assert named[0]["child_blocks"][0]["elements"][0]["action_id"]


def test_old_versions_of_a_message_are_kept() -> None:
    message = ChatMessage(
        "1.0", "C1", "U1", "two", [], version=1, history=[{"text": "one", "blocks": [{"type": "divider"}]}]
    )
    assert message.blocks_at(0) == [{"type": "divider"}]
    assert message.blocks_at(1) == message.blocks_at(None) == []
    assert ChatMessage.from_state(message.to_state()) == message
    assert all_text(message) == "two"


def test_the_log_and_the_names_of_messages(workspace: Workspace) -> None:
    for number in range(LOG_KEPT + 5):
        workspace.record("api", f"call {number}", {}, {}, 200)
    assert len(workspace.log) == LOG_KEPT
    assert workspace.log[-1].name == f"call {LOG_KEPT + 4}"
    stamps = [workspace.next_ts() for _ in range(100)]
    assert stamps == sorted(set(stamps))


def test_people_and_places_are_found_by_name(workspace: Workspace) -> None:
    assert workspace.user("@bob").id == "U0BOB"
    assert workspace.channel("#gpu") is workspace.channel("gpu") is workspace.channel("C0GPU")
    assert workspace.channel("@bob").dm_user == "U0BOB"
    assert workspace.channel("U0BOB").dm_user == "U0BOB"
    workspace.add_user(User("U0NEW", "newbie", "New Bie", "new@practice.example"))
    assert workspace.dm("U0NEW").members == {"U0NEW", "U0GPUBOT"}


async def test_the_signal_wakes_waiters_and_closes() -> None:
    signal = Signal()
    waiting = asyncio.ensure_future(signal.wait(0))
    await asyncio.sleep(0)
    signal.notify()
    signal.notify()
    assert await waiting == 2
    assert await signal.wait(1) == 2
    assert await signal.wait(2, timeout_s=0.01) == 2
    closing = asyncio.ensure_future(signal.wait(2))
    await asyncio.sleep(0)
    signal.close()
    assert await closing == 2
    assert signal.closed
