"""Deliver notifications to Slack as a new message, an edit or a private one, and classify Slack's errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from bot.blockkit import truncate_message, validate_message
from bot.services.plans.chart import bars
from bot.services.runtime.context import Context
from bot.services.runtime.ports import Delivered, DeliveryFailed
from bot.slack.blocks.elements import channel as channel_name
from bot.slack.blocks.elements import context
from bot.slack.lost_replies import find_posted, in_doubt, metadata_of
from bot.slack.render import UNRENDERED, NotYet, Shown, render
from bot.slack.settings import SlackSettings
from bot.slack.web import Web, WebError
from ledger.models import Notification

#: Errors of an edit whose message does not exist any more, so it is posted again.
LOST: Final = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
#: Errors of a channel that accepts none of our messages.
CLOSED: Final = frozenset(
    {
        "channel_not_found", "not_in_channel", "user_not_in_channel", "is_archived", "restricted_action",
        "messages_tab_disabled", "cannot_dm_bot", "user_not_found", "not_in_conversation", "is_inactive",
        "user_disabled", "restricted_action_read_only_channel", "restricted_action_thread_only_channel",
        "restricted_action_non_threadable_channel",
    }
)  # fmt: skip
#: Errors of a reply whose message is deleted or accepts no replies.
UNTHREADED: Final = frozenset({"thread_not_found", "cannot_reply_to_message"})
#: Errors of blocks that our own checks accept; the text says the same as the blocks.
BAD_BLOCKS: Final = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long"})

#: The type of Slack's own chart.
CHART: Final = "data_visualization"

log = logging.getLogger(__name__)


def points_of(chart: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the bars of a chart block."""
    return [(str(one["label"]), float(one["value"])) for one in chart["chart"]["series"][0]["data"]]


class Notifier:
    """Deliver notifications: implements `bot.services.runtime.ports.Messenger`."""

    def __init__(self, ctx: Context, settings: SlackSettings, web: Web) -> None:
        self._ctx = ctx
        self._settings = settings
        self._web = web

    async def deliver(self, notification: Notification) -> Delivered:
        """Render from state and deliver. Raises `DeliveryFailed`, and nothing else for any problem of Slack's."""
        try:
            shown = await render(self._ctx, self._settings, notification)
        except NotYet as error:
            raise DeliveryFailed(str(error), retry_after_s=1.0) from error
        except LookupError as error:
            raise DeliveryFailed(str(error), permanent=True) from error
        except Exception as error:
            # One message that cannot be rendered must not keep the others of its batch from being shown.
            log.exception("the notification %s could not be rendered", notification.id)
            raise DeliveryFailed(f"{UNRENDERED}: {type(error).__name__}") from error
        try:
            return await self._show(notification, shown)
        except WebError as error:
            raise DeliveryFailed(str(error), retry_after_s=error.retry_after_s) from error

    async def _show(self, row: Notification, shown: Shown) -> Delivered:
        # The metadata name our notification, in case the reply to this call is lost.
        payload = {**shown.message.payload(row.version), "metadata": metadata_of(row)}
        if not shown.channel:
            raise DeliveryFailed(f"no Slack channel is set up for {row.destination or 'requests'}", permanent=True)
        if shown.edits and row.ts and row.channel:
            edited = await self._edit(row.channel, row.ts, payload)
            if edited is not None:
                return edited
        private = bool(shown.only_for) and not shown.channel.startswith("D")
        if in_doubt(row) and not private:
            there = await self._already(row, shown, payload)
            if there is not None:
                return there
        try:
            if private:
                return await self._post_privately(shown, payload)
            return await self._post(shown.channel, payload, shown.thread_ts)
        except WebError as error:
            if shown.thread_ts and error.code in UNTHREADED:
                log.info("what %s replies to is gone (%s), so it has no thread", row.id, error.code)
                return await self._post(shown.channel, payload)
            if error.code not in CLOSED:
                raise
            return await self._elsewhere(shown, payload, error)

    async def _already(self, row: Notification, shown: Shown, payload: dict[str, Any]) -> Delivered | None:
        """Find where Slack shows it although its reply was lost, and update it where it is edited; None otherwise."""
        posted = await find_posted(self._web, row, shown)
        if posted is not None and posted.version != row.version:
            return await self._edit(posted.channel, posted.ts, payload) if shown.edits else None
        return None if posted is None else Delivered(posted.channel, posted.ts)

    async def _edit(self, channel: str, ts: str, payload: dict[str, Any]) -> Delivered | None:
        """Edit a message; None when it cannot be edited any more and must be posted again."""
        try:
            await self._send("chat.update", payload, channel=channel, ts=ts)
        except WebError as error:
            if error.code in LOST or error.code in CLOSED:
                log.info("the message %s in %s is gone (%s) and is posted again", ts, channel, error.code)
                return None
            raise
        return Delivered(channel, ts)

    async def _post(self, channel: str, payload: dict[str, Any], thread_ts: str | None = None) -> Delivered:
        answer = await self._send(
            "chat.postMessage",
            payload,
            channel=channel,
            thread_ts=thread_ts,
            unfurl_links=False,
            unfurl_media=False,
            link_names=False,
        )
        # The answer names the conversation: for a direct message it is not the user id that was sent.
        return Delivered(str(answer.get("channel") or channel), str(answer.get("ts") or "") or None)

    async def _post_privately(self, shown: Shown, payload: dict[str, Any]) -> Delivered:
        private = {key: value for key, value in payload.items() if key != "metadata"}
        await self._send("chat.postEphemeral", private, channel=shown.channel, user=shown.only_for)
        return Delivered(shown.channel, None)

    async def _elsewhere(self, shown: Shown, payload: dict[str, Any], error: WebError) -> Delivered:
        """Send a direct message to its person when the channel is closed to us, with advice on what would help."""
        if not shown.fallback:
            said = f"{shown.channel} does not take messages of this app ({error.code}); invite it to the channel"
            raise DeliveryFailed(said, permanent=True) from error
        log.warning("%s does not take messages of this app (%s); %s gets it", shown.channel, error.code, shown.fallback)
        note = (
            f"I could not post this in {channel_name(shown.channel)} ({error.code}). "
            "Somebody there can invite me with `/invite`, so that approvers see it."
        )
        blocks = payload.get("blocks") or []
        noted = {**payload, "text": f"{payload['text']} {note}", "blocks": [*blocks, context(note)]}
        try:
            return await self._post(shown.fallback, noted if not shown.only_for else payload)
        except WebError as second:
            if second.code in CLOSED:
                said = f"neither {shown.channel} nor {shown.fallback} takes messages of this app ({second.code})"
                raise DeliveryFailed(said, permanent=True) from second
            raise

    async def _send(self, method: str, payload: dict[str, Any], **where: Any) -> Any:
        """Check, cut if needed, and send; when Slack still refuses the blocks, send the text alone."""
        errors = validate_message(payload)
        if errors:
            log.error("a message did not fit and was cut: %s", "; ".join(errors[:3]))
            payload = truncate_message(payload)
        try:
            return await self._web.call(method, **payload, **where)
        except WebError as error:
            if error.code not in BAD_BLOCKS or not payload.get("blocks"):
                raise
            charts = [block for block in payload["blocks"] if block.get("type") == CHART]
            if charts:
                log.warning("Slack refused a message with a chart of its own, so the chart is drawn: %s", error)
                others = [block for block in payload["blocks"] if block.get("type") != CHART]
                answer = await self._send(method, {**payload, "blocks": others}, **where)
                await self._draw(charts, str(answer.get("channel") or where.get("channel") or ""))
                return answer
            log.warning("Slack refused the blocks of a message, so its text goes alone: %s", error)
            return await self._web.call(method, **{**payload, "blocks": []}, **where)

    async def _draw(self, charts: list[dict[str, Any]], channel: str) -> None:
        """Draw charts as pictures where Slack does not know its own block; without them send the message alone."""
        for chart in charts:
            axes = chart["chart"].get("axis_config", {})
            units = (str(axes.get("x_label", "")), str(axes.get("y_label", "")))
            picture = await asyncio.to_thread(bars, chart["title"], points_of(chart), units)
            try:
                await self._web.share_picture(channel, "chart.png", picture, title=chart["title"], said=chart["title"])
            except WebError as error:
                log.warning("the chart of a message was not shown: %s", error)
