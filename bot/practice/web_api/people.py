"""Answer auth.test, users.*, usergroups.* and conversations.*."""

from __future__ import annotations

from typing import TypeVar

from bot.practice.model import APP_ID, BOT_ID, BOT_USER_ID, TEAM_ID, ApiError, Channel, Json, User
from bot.practice.workspace import Workspace

T = TypeVar("T")


def auth_test(workspace: Workspace, _arguments: Json) -> Json:
    """Answer auth.test."""
    return {
        "url": f"{workspace.base_url}/",
        "team": "Practice",
        "user": workspace.manifest.bot_name,
        "team_id": TEAM_ID,
        "user_id": BOT_USER_ID,
        "bot_id": BOT_ID,
        "app_id": APP_ID,
        "is_enterprise_install": False,
    }


def _page(items: list[T], arguments: Json, default: int) -> tuple[list[T], Json]:
    try:
        start = int(str(arguments.get("cursor") or "c0").removeprefix("c"))
        limit = int(arguments.get("limit") or default)
    except ValueError:
        raise ApiError("invalid_cursor") from None
    end = start + max(1, limit)
    following = f"c{end}" if end < len(items) else ""
    return items[start:end], {"response_metadata": {"next_cursor": following}}


def _may_read_email(workspace: Workspace) -> bool:
    scopes = workspace.manifest.scopes
    return scopes is None or "users:read.email" in scopes


def users_info(workspace: Workspace, arguments: Json) -> Json:
    """Answer users.info."""
    user = workspace.users.get(str(arguments.get("user")))
    if user is None:
        raise ApiError("user_not_found")
    return {"user": user.to_json(with_email=_may_read_email(workspace))}


def users_list(workspace: Workspace, arguments: Json) -> Json:
    """Answer users.list, with cursors."""
    page, following = _page(list(workspace.users.values()), arguments, 100)
    with_email = _may_read_email(workspace)
    return {"members": [user.to_json(with_email=with_email) for user in page], **following}


def users_by_email(workspace: Workspace, arguments: Json) -> Json:
    """Answer users.lookupByEmail."""
    email = str(arguments.get("email") or "").lower()
    user = next((u for u in workspace.users.values() if u.email and u.email.lower() == email), None)
    if user is None or user.deleted:
        raise ApiError("users_not_found")
    return {"user": user.to_json()}


def usergroups_list(workspace: Workspace, arguments: Json) -> Json:
    """Answer usergroups.list; members only with include_users."""
    groups = [group.to_json() for group in workspace.usergroups.values() if not group.disabled]
    if str(arguments.get("include_users")).lower() not in {"true", "1"}:
        groups = [{key: value for key, value in group.items() if key != "users"} for group in groups]
    return {"usergroups": groups}


def usergroup_users(workspace: Workspace, arguments: Json) -> Json:
    """Answer usergroups.users.list."""
    group = workspace.usergroups.get(str(arguments.get("usergroup")))
    if group is None:
        raise ApiError("no_such_subteam")
    return {"users": list(group.users)}


def open_conversation(workspace: Workspace, arguments: Json) -> Json:
    """Answer conversations.open for one person."""
    people = [u for u in str(arguments.get("users") or "").split(",") if u]
    if not people:
        raise ApiError("users_list_not_supplied")
    if any(u not in workspace.users for u in people):
        raise ApiError("user_not_found")
    if len(people) > 1:
        raise ApiError("method_not_supported_for_channel_type")
    channel = workspace.dm(people[0])
    return {"channel": channel.to_json()}


def conversation_info(workspace: Workspace, arguments: Json) -> Json:
    """Answer conversations.info."""
    return {"channel": _readable(workspace, arguments).to_json()}


def _readable(workspace: Workspace, arguments: Json) -> Channel:
    reference = arguments.get("channel")
    if not isinstance(reference, str) or reference not in workspace.channels:
        # Reading takes ids only; posting also takes names.
        raise ApiError("channel_not_found")
    return workspace.place_for_app(reference)


def conversations_list(workspace: Workspace, arguments: Json) -> Json:
    """Answer conversations.list: public channels, and private ones with the app in them."""
    kinds = str(arguments.get("types") or "public_channel").split(",")
    found = [channel for channel in workspace.channels.values() if _kind(channel) in kinds]
    visible = [c for c in found if not c.is_private or BOT_USER_ID in c.members]
    page, following = _page(visible, arguments, 100)
    return {"channels": [channel.to_json() for channel in page], **following}


def _kind(channel: Channel) -> str:
    if channel.is_im:
        return "im"
    return "private_channel" if channel.is_private else "public_channel"


def conversation_members(workspace: Workspace, arguments: Json) -> Json:
    """Answer conversations.members, with cursors."""
    page, following = _page(sorted(_readable(workspace, arguments).members), arguments, 100)
    return {"members": page, **following}


def approvers(workspace: Workspace, group_handle: str) -> list[User]:
    """Return the people of a group by its handle; KeyError when there is no such group."""
    group = {g.handle: g for g in workspace.usergroups.values()}[group_handle.removeprefix("@")]
    return [workspace.users[user_id] for user_id in group.users]
