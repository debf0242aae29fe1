"""The bodies that Slack sends to an app. Shapes: Slack's reference pages for commands, interactions and events."""

from __future__ import annotations

import re
from typing import Any, Final

from bot.blockkit import escape
from bot.practice.model import APP_ID, TEAM_ID, Channel, ChatMessage, Json, OpenView, User
from bot.practice.workspace import Workspace

VERIFICATION_TOKEN: Final = "practice-verification"  # noqa: S105 - the deprecated token of the format, it guards nothing.
TEAM: Final[Json] = {"id": TEAM_ID, "domain": "practice"}
_MENTION: Final = re.compile(r"(?<![\w/])([@#])([\w.-]+)")
_SPECIAL: Final = ("here", "channel", "everyone")


def escaped_text(workspace: Workspace, text: str) -> str:
    """A command's text under should_escape: & < > as entities, @names and #channels as ids.

    Whether Slack also escapes & < > in command texts is not documented; entities are the harder case for an app.
    """

    def mention(match: re.Match[str]) -> str:
        sign, name = match.groups()
        if sign == "#":
            channel = next((c for c in workspace.channels.values() if c.name == name and not c.is_im), None)
            return f"<#{channel.id}|{'' if channel.is_private else name}>" if channel else match.group()
        if name in _SPECIAL:
            return f"<!{name}>"
        user = next((u for u in workspace.users.values() if u.name == name), None)
        if user is not None:
            return f"<@{user.id}|{name}>"
        group = next((g for g in workspace.usergroups.values() if g.handle == name), None)
        return f"<!subteam^{group.id}|@{name}>" if group else match.group()

    return _MENTION.sub(mention, escape(text))


def command(workspace: Workspace, user: User, channel: Channel, name: str, text: str) -> Json:
    """The form fields of a slash command."""
    return {
        "token": VERIFICATION_TOKEN,
        "team_id": user.team_id,
        "team_domain": TEAM["domain"],
        "channel_id": channel.id,
        "channel_name": channel.name,
        "user_id": user.id,
        "user_name": user.name,
        "command": name,
        "text": text,
        "api_app_id": APP_ID,
        "is_enterprise_install": "false",
        "response_url": workspace.new_response_url(user.id, channel.id),
        "trigger_id": workspace.new_trigger(user.id),
    }


def _interaction(kind: str, user: User) -> Json:
    return {
        "type": kind,
        "user": {"id": user.id, "username": user.name, "name": user.name, "team_id": user.team_id},
        "api_app_id": APP_ID,
        "token": VERIFICATION_TOKEN,
        "team": dict(TEAM),
        "enterprise": None,
        "is_enterprise_install": False,
    }


def message_action(
    workspace: Workspace, user: User, channel: Channel, message: ChatMessage, action: Json, state: Json
) -> Json:
    """A block_actions payload for an element in a message."""
    container: Json = {
        "type": "message",
        "message_ts": message.ts,
        "channel_id": channel.id,
        "is_ephemeral": message.ephemeral_to is not None,
    }
    if message.thread_ts:
        container["thread_ts"] = message.thread_ts
    return {
        **_interaction("block_actions", user),
        "container": container,
        "trigger_id": workspace.new_trigger(user.id),
        "channel": {"id": channel.id, "name": channel.name},
        "message": message.to_json(),
        "state": {"values": state},
        "response_url": workspace.new_response_url(user.id, channel.id, message.ts),
        "actions": [action],
    }


def view_action(workspace: Workspace, user: User, view: OpenView, action: Json) -> Json:
    """A block_actions payload for an element in a modal or a home tab."""
    return {
        **_interaction("block_actions", user),
        "container": {"type": "view", "view_id": view.id},
        "trigger_id": workspace.new_trigger(user.id),
        "view": view.to_json(),
        "actions": [action],
    }


def view_submission(workspace: Workspace, user: User, view: OpenView) -> Json:
    """A view_submission payload; the view carries its state."""
    return {
        **_interaction("view_submission", user),
        "trigger_id": workspace.new_trigger(user.id),
        "view": view.to_json(),
        "response_urls": [],
    }


def view_closed(user: User, view: OpenView, *, is_cleared: bool) -> Json:
    """A view_closed payload; it has no trigger_id."""
    return {**_interaction("view_closed", user), "view": view.to_json(), "is_cleared": is_cleared}


def event(workspace: Workspace, body: Json) -> Json:
    """The envelope of the Events API around one event."""
    authorization = {"enterprise_id": None, "team_id": TEAM_ID, "user_id": "U0GPUBOT", "is_bot": True}
    return {
        "token": VERIFICATION_TOKEN,
        "team_id": TEAM_ID,
        "api_app_id": APP_ID,
        "event": body,
        "type": "event_callback",
        "event_id": workspace.new_id("Ev"),
        "event_time": int(workspace.clock.now().timestamp()),
        "authorizations": [{**authorization, "is_enterprise_install": False}],
        "is_ext_shared_channel": False,
    }


def home_opened(workspace: Workspace, user: User, channel: Channel, view: OpenView | None) -> Json:
    """The app_home_opened event; it carries the published view from the second time on."""
    body: Json = {
        "type": "app_home_opened",
        "user": user.id,
        "channel": channel.id,
        "tab": "home",
        "event_ts": workspace.next_ts(),
    }
    if view is not None:
        body["view"] = view.to_json()
    return body


def message_event(channel: Channel, message: ChatMessage) -> Json:
    """The message event for what a person wrote."""
    kind = "im" if channel.is_im else ("group" if channel.is_private else "channel")
    body: dict[str, Any] = {
        "type": "message",
        "channel": channel.id,
        "channel_type": kind,
        "user": message.user,
        "text": message.text,
        "ts": message.ts,
        "event_ts": message.ts,
        "team": TEAM_ID,
    }
    if message.thread_ts:
        body["thread_ts"] = message.thread_ts
    return body
