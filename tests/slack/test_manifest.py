"""The manifest asks for exactly what the code uses: scopes from the methods that are called, events that are heard."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.slack.settings import SlackSettings
from tests.slack.conftest import MANIFEST

CODE = Path(__file__).parents[2] / "bot" / "slack"
#: Messages are read only to find one of our own whose answer was lost, wherever it may have been posted.
HISTORY = "channels:history groups:history im:history"
#: Method → the bot scopes that it needs, from Slack's page of each method, as words; some need none.
SCOPES: dict[str, str] = {
    "auth.test": "",
    "chat.postEphemeral": "chat:write",
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "conversations.history": HISTORY,
    "conversations.open": "im:write",
    "conversations.replies": HISTORY,
    "files.completeUploadExternal": "files:write",
    "files.getUploadURLExternal": "files:write",
    "usergroups.users.list": "usergroups:read",
    "users.info": "users:read",
    "views.open": "",
    "views.publish": "",
    "views.push": "",
    "views.update": "",
}
METHOD = re.compile(r"(?:auth|chat|users|usergroups|views|conversations|files|apps|reactions)(?:\.[a-zA-Z]+)+")


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))
    return found


def strings() -> Iterator[str]:
    """Every string literal in the door's code."""
    for path in CODE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def listened(method: str) -> set[str]:
    """The literal first arguments of every `….method("…")`."""
    found: set[str] = set()
    for path in CODE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method):
                continue
            found |= {str(one.value) for one in node.args[:1] if isinstance(one, ast.Constant)}
    return found


def test_scopes_are_those_of_the_methods_that_are_called(manifest: dict[str, Any]) -> None:
    used = {text for text in strings() if METHOD.fullmatch(text)}
    assert used == set(SCOPES)
    needed = {scope for method in used for scope in SCOPES[method].split()} | {"commands"}
    assert set(manifest["oauth_config"]["scopes"]["bot"]) == needed


def test_events_are_those_that_are_heard(manifest: dict[str, Any]) -> None:
    assert set(manifest["settings"]["event_subscriptions"]["bot_events"]) == listened("event")


def test_the_command_is_the_default_of_the_settings(manifest: dict[str, Any]) -> None:
    (command,) = manifest["features"]["slash_commands"]
    assert command["command"] == SlackSettings(bot_token="xoxb-1", signing_secret="s").command
    assert command["should_escape"] is True
    assert 2 <= len(command["command"]) <= 32
    assert len(command["usage_hint"]) <= 1_000
    assert len(command["description"]) <= 2_000


def test_what_the_door_needs_is_switched_on(manifest: dict[str, Any]) -> None:
    assert manifest["features"]["app_home"]["home_tab_enabled"] is True
    assert manifest["features"]["app_home"]["messages_tab_enabled"] is True
    assert manifest["settings"]["interactivity"]["is_enabled"] is True
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert manifest["settings"]["token_rotation_enabled"] is False


def test_lengths(manifest: dict[str, Any]) -> None:
    shown = manifest["display_information"]
    assert len(shown["name"]) <= 35
    assert len(shown["description"]) <= 140
    assert 175 <= len(shown["long_description"]) <= 4_000
    assert re.fullmatch("#[0-9a-f]{6}", shown["background_color"])
    assert len(manifest["features"]["bot_user"]["display_name"]) <= 80


def test_only_known_sections(manifest: dict[str, Any]) -> None:
    assert set(manifest) == {"_metadata", "display_information", "features", "oauth_config", "settings"}
    assert set(manifest["settings"]) == {
        "event_subscriptions",
        "interactivity",
        "org_deploy_enabled",
        "socket_mode_enabled",
        "token_rotation_enabled",
    }
