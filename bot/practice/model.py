"""Model a workspace: users, channels, messages, views, files, and the rights to answer an interaction."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Self

Json = dict[str, Any]

TEAM_ID: Final = "T0PRACTICE"
PARTNER_TEAM_ID: Final = "T0PARTNER"
APP_ID: Final = "A0GPUSHOP"
BOT_ID: Final = "B0GPUBOT"
BOT_USER_ID: Final = "U0GPUBOT"
SLACKBOT_ID: Final = "USLACKBOT"


class ApiError(Exception):
    """A refusal that the Web API answers as `{"ok": false, "error": code}` plus `extra`."""

    def __init__(self, code: str, **extra: Any) -> None:
        super().__init__(code)
        self.code = code
        self.extra = extra


def invalid_arguments(lines: list[str], code: str = "invalid_arguments", **extra: Any) -> ApiError:
    """Return the refusal of wrong arguments, with one line for each."""
    return ApiError(code, **extra, response_metadata={"messages": [f"[ERROR] {line}" for line in lines]})


class ScreenState:
    """What is on a screen. A snapshot travels as JSON to the practice page and the remote driver."""

    __slots__: tuple[str, ...] = ()

    def to_state(self) -> Json:
        """Return all fields."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_state(cls, data: Json) -> Self:
        """Read what `to_state` wrote."""
        return cls(**data)

    def copy(self) -> Self:
        """Copy it as it is shown now; later changes do not change the copy."""
        return copy.deepcopy(self)


@dataclass(slots=True)
class User:
    """A person or a bot. `role` is the name on the practice page; Slack does not know it."""

    id: str
    name: str
    real_name: str
    email: str
    role: str = ""
    team_id: str = TEAM_ID
    is_bot: bool = False
    deleted: bool = False
    is_guest: bool = False
    tz: str = "Etc/UTC"
    tz_offset_s: int = 0

    @property
    def is_stranger(self) -> bool:
        """Whether somebody belongs to another workspace and is here through a shared channel."""
        return self.team_id != TEAM_ID

    def to_json(self, *, with_email: bool = True) -> Json:
        """Return the user object of users.info."""
        profile: Json = {"real_name": self.real_name, "display_name": self.name, "team": self.team_id}
        if with_email:
            profile["email"] = self.email
        return {
            "id": self.id,
            "team_id": self.team_id,
            "name": self.name,
            "real_name": self.real_name,
            "deleted": self.deleted,
            "is_bot": self.is_bot,
            "is_app_user": False,
            "is_stranger": self.is_stranger,
            "is_restricted": self.is_guest,
            "is_ultra_restricted": False,
            "tz": self.tz,
            "tz_label": "Coordinated Universal Time",
            "tz_offset": self.tz_offset_s,
            "locale": "en-US",
            "profile": profile,
        }


@dataclass(slots=True)
class Channel:
    """A channel, or with `dm_user` the direct messages between that person and the bot."""

    id: str
    name: str
    members: set[str] = field(default_factory=set)
    is_private: bool = False
    dm_user: str | None = None
    topic: str = ""
    archived: bool = False

    @property
    def is_im(self) -> bool:
        """Whether these are direct messages."""
        return self.dm_user is not None

    def to_json(self) -> Json:
        """Return the conversation object of conversations.info."""
        if self.dm_user is not None:
            return {"id": self.id, "is_im": True, "is_channel": False, "user": self.dm_user, "is_open": True}
        return {
            "id": self.id,
            "name": self.name,
            "name_normalized": self.name,
            "is_channel": not self.is_private,
            "is_group": self.is_private,
            "is_im": False,
            "is_mpim": False,
            "is_private": self.is_private,
            "is_archived": self.archived,
            "is_member": BOT_USER_ID in self.members,
            "num_members": len(self.members),
            "topic": {"value": self.topic},
        }


@dataclass(slots=True)
class Usergroup:
    """A group of people with a handle, such as @gpu-approvers."""

    id: str
    handle: str
    name: str
    users: list[str]
    disabled: bool = False

    def to_json(self) -> Json:
        """Return the object of usergroups.list."""
        return {
            "id": self.id,
            "team_id": TEAM_ID,
            "is_usergroup": True,
            "handle": self.handle,
            "name": self.name,
            "date_delete": int(self.disabled),
            "user_count": len(self.users),
            "users": list(self.users),
        }


@dataclass(slots=True)
class ChatMessage(ScreenState):
    """A message as everybody sees it now, or with `ephemeral_to` as one person sees it.

    `version` counts the edits; `history` holds the earlier `{"text", "blocks"}` so that a stale screen can be clicked.
    """

    ts: str
    channel: str
    user: str
    text: str = ""
    blocks: list[Json] = field(default_factory=list)
    thread_ts: str | None = None
    bot_id: str | None = None
    ephemeral_to: str | None = None
    subtype: str | None = None
    metadata: Json | None = None
    files: list[Json] = field(default_factory=list)
    attachments: list[Json] = field(default_factory=list)
    reactions: dict[str, list[str]] = field(default_factory=dict)
    edited_ts: str | None = None
    deleted: bool = False
    version: int = 0
    history: list[Json] = field(default_factory=list)

    @property
    def is_edited(self) -> bool:
        """Whether people see "(edited)"."""
        return self.edited_ts is not None

    def blocks_at(self, version: int | None) -> list[Json]:
        """Return the blocks as they were after `version` edits; None means now."""
        if version is None or version >= self.version:
            return self.blocks
        return list(self.history[version]["blocks"])

    def to_json(self) -> Json:
        """Return the message object of the Web API and of interaction payloads."""
        body: Json = {"type": "message", "user": self.user, "ts": self.ts, "text": self.text, "team": TEAM_ID}
        if self.bot_id:
            body |= {"bot_id": self.bot_id, "app_id": APP_ID}
        if self.edited_ts:
            body["edited"] = {"user": self.user, "ts": self.edited_ts}
        for key in ("blocks", "thread_ts", "subtype", "metadata", "files", "attachments"):
            if value := getattr(self, key):
                body[key] = value
        if self.reactions:
            body["reactions"] = [{"name": n, "users": u, "count": len(u)} for n, u in self.reactions.items()]
        return body


@dataclass(slots=True)
class OpenView(ScreenState):
    """A modal on somebody's screen, or their home tab."""

    id: str
    user: str
    body: Json
    hash: str
    root_id: str
    previous_id: str | None = None
    errors: dict[str, str] = field(default_factory=dict)
    state: Json = field(default_factory=dict)
    version: int = 0

    @property
    def type(self) -> str:
        """Return `modal` or `home`."""
        return str(self.body.get("type", "modal"))

    @property
    def callback_id(self) -> str:
        """Return the app's own name for this view."""
        return str(self.body.get("callback_id", ""))

    @property
    def title(self) -> str:
        """Return the words at the top."""
        return str((self.body.get("title") or {}).get("text", ""))

    @property
    def blocks(self) -> list[Json]:
        """Return the blocks, in order."""
        return list(self.body.get("blocks", ()))

    def to_json(self) -> Json:
        """Return the view object of the Web API and of interaction payloads."""
        keys = ("title", "submit", "close", "callback_id", "external_id", "private_metadata")
        return {
            "id": self.id,
            "team_id": TEAM_ID,
            "type": self.type,
            "blocks": self.blocks,
            "private_metadata": "",
            "callback_id": "",
            "external_id": "",
            "title": None,
            "submit": None,
            "close": None,
            **{key: self.body[key] for key in keys if self.body.get(key) is not None},
            "clear_on_close": bool(self.body.get("clear_on_close")),
            "notify_on_close": bool(self.body.get("notify_on_close")),
            "state": {"values": self.state},
            "hash": self.hash,
            "root_view_id": self.root_id,
            "previous_view_id": self.previous_id,
            "app_id": APP_ID,
            "app_installed_team_id": TEAM_ID,
            "bot_id": BOT_ID,
        }


@dataclass(slots=True)
class Trigger:
    """The right to open one modal, for three seconds after an interaction."""

    id: str
    user: str
    at: datetime
    used: bool = False


@dataclass(slots=True)
class ResponseUrl:
    """The right to answer an interaction: five posts within thirty minutes."""

    token: str
    user: str
    channel: str
    at: datetime
    message_ts: str | None = None
    posts: int = 0


@dataclass(slots=True)
class UploadedFile:
    """An upload. It is shared only once it has been completed."""

    id: str
    name: str
    length: int
    token: str
    content: bytes = b""
    alt_text: str = ""
    completed: bool = False

    @property
    def mimetype(self) -> str:
        """Return the type of the bytes, judged by their beginning."""
        return "image/png" if self.content.startswith(b"\x89PNG") else "application/octet-stream"

    def to_json(self, base_url: str) -> Json:
        """Return the file object."""
        return {
            "id": self.id,
            "name": self.name,
            "title": self.name,
            "mimetype": self.mimetype,
            "size": len(self.content),
            "alt_txt": self.alt_text,
            "url_private": f"{base_url}/practice/files/{self.id}",
            "permalink": f"{base_url}/practice/files/{self.id}",
        }


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the raw log: a request or an answer, in either direction."""

    number: int
    at: str
    kind: Literal["api", "delivery", "response_url"]
    name: str
    request: Json
    response: Json
    status: int | None


@dataclass(slots=True)
class ActionResult(ScreenState):
    """What a person sees after acting. `error` is None, or a code such as `operation_timeout` shown to them.

    `errors` are a dialog's complaints by block_id; `response` is the app's own answer; `took_s` is its ack time.
    """

    ok: bool
    error: str | None = None
    status: int | None = None
    took_s: float = 0.0
    response: Json = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
