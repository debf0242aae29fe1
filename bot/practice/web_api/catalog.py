"""List the Web API's methods: their callers, verbs, rate limits and arguments.

Scopes, verbs, tiers and arguments: Slack's reference pages of each method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from bot.practice import views
from bot.practice.model import Json
from bot.practice.web_api import chat, files, people
from bot.practice.workspace import Workspace

Handler = Callable[[Workspace, Json], Json]


@dataclass(frozen=True, slots=True)
class Method:
    """One method. `scopes` are alternatives; `reads` methods take GET and POST but no JSON body; tier 0 = no limit."""

    handler: Handler
    #: The names of its arguments; a star marks those that a call needs.
    takes: str = ""
    scopes: tuple[str, ...] = ()
    tier: int = 0
    reads: bool = False
    caller: Literal["bot", "app"] = "bot"

    @property
    def arguments(self) -> frozenset[str]:
        """Return the names of all arguments."""
        return frozenset(self.takes.replace("*", "").split())

    @property
    def required(self) -> list[str]:
        """Return the names of the arguments that a call needs."""
        return [name.removesuffix("*") for name in self.takes.split() if name.endswith("*")]


_CONTENT: Final = "text blocks attachments"
_POST: Final = (
    f"{_CONTENT} thread_ts reply_broadcast metadata unfurl_links unfurl_media mrkdwn parse link_names"
    " username icon_url icon_emoji as_user client_msg_id markdown_text"
)
_PAGE: Final = "cursor limit oldest latest inclusive include_all_metadata"
_WRITE: Final = ("chat:write",)
_CHANNELS: Final = ("channels:read", "groups:read", "im:read", "mpim:read")
_HISTORY: Final = ("channels:history", "groups:history", "im:history", "mpim:history")


def connections_open(workspace: Workspace, _arguments: Json) -> Json:
    """Answer apps.connections.open: an address for one WebSocket."""
    base = workspace.base_url.replace("http", "ws", 1)
    return {"url": f"{base}/socket?ticket={workspace.new_id('S0')}"}


METHODS: Final[dict[str, Method]] = {
    "auth.test": Method(people.auth_test),
    "chat.postMessage": Method(chat.post_message, f"channel* {_POST}", _WRITE),
    "chat.update": Method(
        chat.update,
        f"channel* ts* {_CONTENT} metadata parse link_names reply_broadcast file_ids as_user markdown_text",
        _WRITE,
        tier=3,
    ),
    "chat.delete": Method(chat.delete, "channel* ts* as_user", _WRITE, tier=3),
    "chat.postEphemeral": Method(
        chat.post_ephemeral,
        f"channel* user* {_CONTENT} thread_ts parse link_names username icon_url icon_emoji as_user",
        _WRITE,
        tier=4,
    ),
    "chat.getPermalink": Method(chat.permalink, "channel* message_ts*", reads=True),
    "conversations.open": Method(
        people.open_conversation, "users channel return_im prevent_creation", ("im:write", "mpim:write"), tier=3
    ),
    "conversations.info": Method(
        people.conversation_info, "channel* include_locale include_num_members", _CHANNELS, tier=3, reads=True
    ),
    "conversations.list": Method(
        people.conversations_list, "types cursor limit exclude_archived team_id", _CHANNELS, tier=2, reads=True
    ),
    "conversations.members": Method(
        people.conversation_members, "channel* cursor limit", _CHANNELS, tier=4, reads=True
    ),
    "conversations.history": Method(chat.history, f"channel* {_PAGE}", _HISTORY, tier=3, reads=True),
    "conversations.replies": Method(chat.replies, f"channel* ts* {_PAGE}", _HISTORY, tier=3, reads=True),
    "users.info": Method(people.users_info, "user* include_locale", ("users:read",), tier=4, reads=True),
    "users.list": Method(people.users_list, "cursor limit include_locale team_id", ("users:read",), tier=2, reads=True),
    "users.lookupByEmail": Method(people.users_by_email, "email*", ("users:read.email",), tier=3, reads=True),
    "usergroups.list": Method(
        people.usergroups_list,
        "include_count include_disabled include_users team_id",
        ("usergroups:read",),
        tier=2,
        reads=True,
    ),
    "usergroups.users.list": Method(
        people.usergroup_users, "usergroup* include_disabled team_id", ("usergroups:read",), tier=2, reads=True
    ),
    "views.open": Method(views.open_view, "trigger_id interactivity_pointer view*", tier=4),
    "views.push": Method(views.push_view, "trigger_id interactivity_pointer view*", tier=4),
    "views.update": Method(views.update_view, "view_id external_id view* hash", tier=4),
    "views.publish": Method(views.publish_view, "user_id* view* hash", tier=4),
    "files.getUploadURLExternal": Method(
        files.upload_url, "filename* length* alt_txt snippet_type", ("files:write",), tier=4
    ),
    "files.completeUploadExternal": Method(
        files.complete_upload, "files* channel_id channels thread_ts initial_comment blocks", ("files:write",), tier=4
    ),
    "apps.connections.open": Method(connections_open, tier=3, caller="app"),
    "reactions.add": Method(chat.add_reaction, "channel* timestamp* name*", ("reactions:write",), tier=3),
}
