"""List the Web API's methods: their callers, verbs, rate limits and arguments.

Scopes, verbs, tiers and arguments: Slack's reference pages of each method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from bot.practice.model import Json
from bot.practice.web_api import chat, files, people, views
from bot.practice.workspace import Workspace

Handler = Callable[[Workspace, Json], Json]


@dataclass(frozen=True, slots=True)
class Method:
    """One method. `scopes` are alternatives; `reads` methods take GET and POST but no JSON body; tier 0 = no limit."""

    handler: Handler
    arguments: frozenset[str]
    required: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    tier: int = 0
    reads: bool = False
    caller: Literal["bot", "app"] = "bot"


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CONTENT: Final = "text blocks attachments"
_POST: Final = (
    f"channel {_CONTENT} thread_ts reply_broadcast metadata unfurl_links unfurl_media mrkdwn parse link_names"
    " username icon_url icon_emoji as_user client_msg_id markdown_text"
)
_WRITE: Final = ("chat:write",)
_CHANNELS: Final = ("channels:read", "groups:read", "im:read", "mpim:read")
_HISTORY: Final = ("channels:history", "groups:history", "im:history", "mpim:history")


def connections_open(workspace: Workspace, _arguments: Json) -> Json:
    """Answer apps.connections.open: an address for one WebSocket."""
    base = workspace.base_url.replace("http", "ws", 1)
    return {"url": f"{base}/socket?ticket={workspace.new_id('S0')}"}


METHODS: Final[dict[str, Method]] = {
    "auth.test": Method(people.auth_test, _names("")),
    "chat.postMessage": Method(chat.post_message, _names(_POST), ("channel",), _WRITE),
    "chat.update": Method(
        chat.update,
        _names(f"channel ts {_CONTENT} metadata parse link_names reply_broadcast file_ids as_user markdown_text"),
        ("channel", "ts"),
        _WRITE,
        3,
    ),
    "chat.delete": Method(chat.delete, _names("channel ts as_user"), ("channel", "ts"), _WRITE, 3),
    "chat.postEphemeral": Method(
        chat.post_ephemeral,
        _names(f"channel user {_CONTENT} thread_ts parse link_names username icon_url icon_emoji as_user"),
        ("channel", "user"),
        _WRITE,
        4,
    ),
    "chat.getPermalink": Method(chat.permalink, _names("channel message_ts"), ("channel", "message_ts"), reads=True),
    "conversations.open": Method(
        people.open_conversation,
        _names("users channel return_im prevent_creation"),
        (),
        ("im:write", "mpim:write"),
        3,
    ),
    "conversations.info": Method(
        people.conversation_info,
        _names("channel include_locale include_num_members"),
        ("channel",),
        _CHANNELS,
        3,
        reads=True,
    ),
    "conversations.list": Method(
        people.conversations_list,
        _names("types cursor limit exclude_archived team_id"),
        (),
        _CHANNELS,
        2,
        reads=True,
    ),
    "conversations.members": Method(
        people.conversation_members, _names("channel cursor limit"), ("channel",), _CHANNELS, 4, reads=True
    ),
    "conversations.history": Method(
        chat.history,
        _names("channel cursor limit oldest latest inclusive include_all_metadata"),
        ("channel",),
        _HISTORY,
        3,
        reads=True,
    ),
    "conversations.replies": Method(
        chat.replies,
        _names("channel ts cursor limit oldest latest inclusive include_all_metadata"),
        ("channel", "ts"),
        _HISTORY,
        3,
        reads=True,
    ),
    "users.info": Method(people.users_info, _names("user include_locale"), ("user",), ("users:read",), 4, reads=True),
    "users.list": Method(
        people.users_list, _names("cursor limit include_locale team_id"), (), ("users:read",), 2, reads=True
    ),
    "users.lookupByEmail": Method(
        people.users_by_email, _names("email"), ("email",), ("users:read.email",), 3, reads=True
    ),
    "usergroups.list": Method(
        people.usergroups_list,
        _names("include_count include_disabled include_users team_id"),
        (),
        ("usergroups:read",),
        2,
        reads=True,
    ),
    "usergroups.users.list": Method(
        people.usergroup_users,
        _names("usergroup include_disabled team_id"),
        ("usergroup",),
        ("usergroups:read",),
        2,
        reads=True,
    ),
    "views.open": Method(views.open_view, _names("trigger_id interactivity_pointer view"), ("view",), (), 4),
    "views.push": Method(views.push_view, _names("trigger_id interactivity_pointer view"), ("view",), (), 4),
    "views.update": Method(views.update_view, _names("view_id external_id view hash"), ("view",), (), 4),
    "views.publish": Method(views.publish_view, _names("user_id view hash"), ("user_id", "view"), (), 4),
    "files.getUploadURLExternal": Method(
        files.upload_url, _names("filename length alt_txt snippet_type"), ("filename", "length"), ("files:write",), 4
    ),
    "files.completeUploadExternal": Method(
        files.complete_upload,
        _names("files channel_id channels thread_ts initial_comment blocks"),
        ("files",),
        ("files:write",),
        4,
    ),
    "apps.connections.open": Method(connections_open, _names(""), tier=3, caller="app"),
    "reactions.add": Method(
        chat.add_reaction,
        _names("channel timestamp name"),
        ("channel", "timestamp", "name"),
        ("reactions:write",),
        3,
    ),
}
