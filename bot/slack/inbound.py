"""Reduce Slack's payloads to the messages that are processed and stored: no token, no response URL, no NUL."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bot.rules.values.private_keys import looks_private
from ledger.kernel.actor import Actor, ActorKind

KEY_MAX = 128
TEXT_MAX = 8_000
WITHHELD = "(withheld: it looked like a private key)"


class InboundKind(StrEnum):
    """The kinds of inbox rows that Slack's messages become."""

    COMMAND = "slack.command"
    ACTION = "slack.action"
    VIEW = "slack.view"
    HOME = "slack.home"
    OTHER = "slack.other"


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """One message from Slack. Which fields are set depends on `kind`.

    `text` is what follows a command; `action` and `value` are a button's; `view` is the callback id of a form that was
    submitted or whose button it is, `meta` its private metadata, and `values` what was put into each of its fields
    (block id → text, or list of choices).
    """

    kind: InboundKind
    user: str
    team: str
    channel: str = ""
    text: str = ""
    action: str = ""
    value: str = ""
    view: str = ""
    view_id: str = ""
    meta: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def actor(self) -> Actor:
        """Return who did it."""
        return Actor(ActorKind.SLACK, self.user, self.team)

    def to_json(self) -> dict[str, Any]:
        """Return the body of the inbox row."""
        return {key: value for key in self.__slots__ if (value := getattr(self, key))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InboundMessage:
        """Read what `to_json` wrote; unknown keys are ignored, so that older code reads newer rows."""
        known = {key: value for key, value in data.items() if key in cls.__dataclass_fields__}
        return cls(**{"user": "", "team": "", **known, "kind": InboundKind(known["kind"])})


def read_payload(body: Mapping[str, Any]) -> InboundMessage:
    """Read a verified payload. An unknown one becomes `InboundKind.OTHER`, never an exception."""
    kind = body.get("type")
    if "command" in body and kind is None:
        return InboundMessage(
            InboundKind.COMMAND,
            user=_text(body.get("user_id")),
            team=_text(body.get("team_id")),
            channel=_text(body.get("channel_id")),
            text=_text(body.get("text")),
        )
    user, team = _who(body)
    if kind == "block_actions":
        return _action(body, user, team)
    if kind == "view_submission":
        return _view(body, user, team)
    event = _mapping(body.get("event"))
    if kind == "event_callback" and event.get("type") == "app_home_opened" and event.get("tab") == "home":
        return InboundMessage(InboundKind.HOME, user=_text(event.get("user")), team=_text(body.get("team_id")))
    return InboundMessage(InboundKind.OTHER, user=user, team=team)


def key_of(body: Mapping[str, Any], signature: str | None) -> str:
    """Return a message's unique key: Slack's signature, or in Socket Mode the id that a second delivery repeats."""
    if signature:
        return signature[:KEY_MAX]
    view = _mapping(body.get("view"))
    if body.get("type") == "view_submission" and view.get("id"):
        key = f"view:{_text(view.get('id'))}:{_text(view.get('hash'))}"
    elif body.get("event_id"):
        key = f"event:{_text(body.get('event_id'))}"
    else:
        key = f"trigger:{_text(body.get('trigger_id'))}"
    return key if len(key) <= KEY_MAX else "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def trigger_of(body: Mapping[str, Any]) -> str:
    """Return the trigger that opens a dialog within three seconds; empty without one. It is never stored."""
    return _text(body.get("trigger_id"))


def _action(body: Mapping[str, Any], user: str, team: str) -> InboundMessage:
    actions = body.get("actions")
    first = _mapping(actions[0]) if isinstance(actions, list) and actions else {}
    channel = _mapping(body.get("channel")).get("id") or _mapping(body.get("container")).get("channel_id")
    return InboundMessage(
        InboundKind.ACTION,
        user=user,
        team=team,
        channel=_text(channel),
        action=_text(first.get("action_id")),
        value=_text(_mapping(first.get("selected_option")).get("value") or first.get("value")),
        **_form(body),
    )


def _view(body: Mapping[str, Any], user: str, team: str) -> InboundMessage:
    return InboundMessage(InboundKind.VIEW, user=user, team=team, **_form(body))


def _form(body: Mapping[str, Any]) -> dict[str, Any]:
    """Read the dialog that was submitted, or that holds the clicked button, with its fields."""
    view = _mapping(body.get("view"))
    state = _mapping(_mapping(view.get("state")).get("values"))
    return {
        "view": _text(view.get("callback_id")),
        "view_id": _text(view.get("id")),
        "meta": _text(view.get("private_metadata")),
        "values": {_text(block): _value(element) for block, element in state.items()},
    }


def _value(by_action: Any) -> str | list[str]:
    """Return the value of one input of any type: a text, the value of the chosen option, or those of several."""
    inputs = [one for one in _mapping(by_action).values() if isinstance(one, Mapping)]
    element = inputs[0] if inputs else {}
    chosen = element.get("selected_options")
    if isinstance(chosen, list):
        return [_text(_mapping(option).get("value")) for option in chosen]
    option = element.get("selected_option")
    return _text(_mapping(option).get("value") if option else element.get("value"))


def _who(body: Mapping[str, Any]) -> tuple[str, str]:
    user = _mapping(body.get("user"))
    team = _mapping(body.get("team")).get("id") or user.get("team_id") or body.get("team_id")
    return _text(user.get("id")), _text(team)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    """Clean a string so that every database accepts it: no NUL, no lone surrogate, a limit, never a private key."""
    if not isinstance(value, str):
        return ""
    if looks_private(value):
        return WITHHELD
    return value.replace("\x00", "").encode("utf-8", "replace").decode()[:TEXT_MAX]
