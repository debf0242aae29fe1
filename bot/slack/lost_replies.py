"""Find messages that Slack shows although its reply was lost, by the notification's id in their metadata.

A `chat.postMessage` without a reply may have been shown. Before it is sent again, its conversation is read once, so
that people do not see it twice.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from bot.services.runtime.ports import SENDER_DIED
from bot.slack.render import Shown
from bot.slack.web import Web, WebError
from ledger.models import Notification

EVENT_TYPE: Final = "gpu_shopper_notification"
#: Slack's clock and ours may differ by this much.
SKEW: Final = timedelta(minutes=1)
PAGE: Final = 200
PAGES_MAX: Final = 5
#: Errors of an attempt whose outcome is unknown, or whose look-up failed.
_UNCLEAR: Final = re.compile(r"chat\.postMessage: (?:no_answer|http_5\d\d|(?:internal|fatal)_error)|conversations\.")
#: The conversation does not exist or is closed to us, so it holds no message of ours.
_ELSEWHERE: Final = frozenset(
    {"channel_not_found", "not_in_channel", "thread_not_found", "user_not_found", "users_not_found", "cannot_dm_bot"}
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Posted:
    """A message of ours that Slack shows, and the version of the notification in it."""

    channel: str
    ts: str
    version: int


def metadata_of(row: Notification) -> dict[str, Any]:
    """Return the metadata that name a message's notification."""
    payload = {"id": row.id, "kind": str(row.kind), "version": row.version}
    return {"event_type": EVENT_TYPE, "event_payload": payload}


def in_doubt(row: Notification) -> bool:
    """Whether an earlier attempt may have posted it although its reply was lost."""
    return row.error == SENDER_DIED or _UNCLEAR.match(row.error) is not None


async def find_posted(web: Web, row: Notification, shown: Shown) -> Posted | None:
    """Find the newest message that shows `row`, in its own place or, when that is closed to us, in its fallback.

    Raises `WebError` when Slack does not answer now, or refuses a token that somebody may replace. An app without
    the scopes to read the conversation posts again.
    """
    for channel, thread_ts in ((shown.channel, shown.thread_ts), (shown.fallback, None)):
        try:
            return await _find(web, row, channel, thread_ts) if channel else None
        except WebError as error:
            if error.lacks_right:
                log.warning("whether %s is shown already cannot be looked up: %s", row.id, error)
                return None
            if error.code not in _ELSEWHERE:
                raise
    return None


async def _find(web: Web, row: Notification, channel: str, thread_ts: str | None) -> Posted | None:
    place = await _conversation(web, channel)
    method = "conversations.replies" if thread_ts else "conversations.history"
    oldest = f"{(row.created_at - SKEW).timestamp():.6f}"
    cursor: str | None = None
    found: list[Posted] = []
    for _ in range(PAGES_MAX):
        answer = await web.call(
            method, channel=place, ts=thread_ts, oldest=oldest, limit=PAGE, cursor=cursor, include_all_metadata="true"
        )
        found += [one for message in answer.get("messages") or () if (one := _read(message, row, place))]
        cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
        if found or cursor is None:
            break
    return max(found, key=lambda one: one.version, default=None)


async def _conversation(web: Web, channel: str) -> str:
    """Return the id of a conversation; that of direct messages with a user must be looked up."""
    if not channel.startswith(("U", "W")):
        return channel
    answer = await web.call("conversations.open", users=channel)
    return str((answer.get("channel") or {}).get("id") or channel)


def _read(message: Mapping[str, Any], row: Notification, channel: str) -> Posted | None:
    metadata = message.get("metadata") or {}
    payload = metadata.get("event_payload") or {}
    if metadata.get("event_type") != EVENT_TYPE or payload.get("id") != row.id:
        return None
    version = payload.get("version")
    return Posted(channel, str(message.get("ts")), version if isinstance(version, int) else 0)
