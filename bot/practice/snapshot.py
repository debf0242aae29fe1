"""The whole workspace as JSON, as one person sees it or, without a viewer, everything."""

from __future__ import annotations

from dataclasses import asdict

from bot.practice.model import BOT_USER_ID, ChatMessage, Json
from bot.practice.workspace import Workspace


def snapshot(workspace: Workspace, viewer: str | None = None) -> Json:
    """State for the page (`viewer` is a user id) and for the remote driver (None). Times are epoch seconds."""
    visible = [m for m in workspace.messages if viewer is None or _sees(workspace, m, viewer)]
    return {
        "version": workspace.signal.version,
        "now": workspace.clock.now().timestamp(),
        "can_travel": hasattr(workspace.clock, "travel"),
        "ahead_s": getattr(workspace.clock, "ahead_s", 0.0),
        "app": {
            "name": workspace.manifest.name,
            "user_id": BOT_USER_ID,
            "home_tab": workspace.manifest.home_tab,
            "transport": "HTTP" if workspace.request_url else "Socket Mode",
        },
        "commands": [asdict(command) for command in workspace.manifest.commands],
        "users": [{**asdict(user), "is_stranger": user.is_stranger} for user in workspace.users.values()],
        "usergroups": [asdict(group) for group in workspace.usergroups.values()],
        "channels": [
            {**asdict(channel), "members": sorted(channel.members)}
            for channel in workspace.channels.values()
            if viewer is None or viewer in channel.members
        ],
        "messages": [message.to_state() for message in visible],
        "stacks": {
            user: [view.to_state() for view in stack]
            for user, stack in workspace.stacks.items()
            if viewer in {None, user}
        },
        "homes": {user: v.to_state() for user, v in workspace.homes.items() if viewer in {None, user}},
    }


def _sees(workspace: Workspace, message: ChatMessage, viewer: str) -> bool:
    if message.deleted or viewer not in workspace.channels[message.channel].members:
        return False
    return message.ephemeral_to in {None, viewer}


def raw_log(workspace: Workspace, after: int) -> Json:
    """The raw log's lines with a number above `after`, oldest first."""
    return {"log": [asdict(record) for record in workspace.log if record.number > after]}
