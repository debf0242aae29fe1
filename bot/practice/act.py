"""Act as people do: type commands, press buttons, fill in dialogs, open the home tab, write messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bot.practice import messages, payloads, views
from bot.practice.dispatch import Ack, Courier
from bot.practice.inputs import entry_for, fill_in, find_option
from bot.practice.model import ActionResult, ApiError, Channel, ChatMessage, Json, OpenView, ResponseUrl, User
from bot.practice.response_url import apply_response
from bot.practice.workspace import Workspace

TROUBLE: Final = "We had some trouble connecting. Try again?"
INVALID_RESPONSE: Final = "invalid_app_response"
NOT_FILLED_IN: Final = "not_filled_in"


class NothingToClick(LookupError):
    """The message or view has no such button or menu."""


class Acts:
    """Act as the people of one workspace. Every act returns what the person sees, as an `ActionResult`."""

    def __init__(self, workspace: Workspace, courier: Courier) -> None:
        self._workspace = workspace
        self._courier = courier

    # ── slash commands and messages ──────────────────────────────────────────────────────────────

    async def command(self, who: str, line: str, channel: str = "#gpu", thread_ts: str | None = None) -> ActionResult:
        """Type `/gpu …` somewhere. The platform itself refuses unknown commands and commands in threads."""
        user, place = self._at(who, channel)
        name, _, text = line.strip().partition(" ")
        registered = self._workspace.manifest.command(name)
        if registered is None or thread_ts is not None:
            refusal = f"{name} is not supported in threads. Sorry!" if registered else f"{name} is not a valid command."
            messages.notice(self._workspace, place.id, user.id, refusal)
            return ActionResult(False, "not_in_threads" if registered else "invalid_command")
        text = text.strip()
        if registered.should_escape:
            text = payloads.escaped_text(self._workspace, text)
        fields = payloads.command(self._workspace, user, place, name, text)
        ack = await self._courier.command(fields)
        if ack.error is not None:
            messages.notice(self._workspace, place.id, user.id, f'{name} failed with the error "{ack.error}".')
        elif ack.body:
            token = str(fields["response_url"]).rpartition("/")[2]
            self._answer(self._workspace.response_urls[token], ack.body)
        return _outcome(ack)

    def _answer(self, right: ResponseUrl, body: Json) -> None:
        try:
            apply_response(self._workspace, right, body)
        except ApiError as refusal:
            messages.notice(
                self._workspace, right.channel, right.user, f'The answer could not be shown: "{refusal.code}".'
            )

    async def say(self, who: str, text: str, channel: str = "#gpu", thread_ts: str | None = None) -> ChatMessage:
        """Write a message; the app receives it when it subscribed to such messages."""
        user, place = self._at(who, channel)
        words = payloads.escaped_text(self._workspace, text)
        content: Json = {"text": words, "blocks": [], "attachments": []}
        message = messages.post(self._workspace, place, content, user=user.id, thread_ts=thread_ts)
        body = payloads.message_event(place, message)
        kind = {"im": "message.im", "group": "message.groups"}.get(str(body["channel_type"]), "message.channels")
        if kind in self._workspace.manifest.events:
            self._courier.event(payloads.event(self._workspace, body))
        return message

    def _at(self, who: str, where: str) -> tuple[User, Channel]:
        user = self._workspace.user(who)
        # "@gpu" and "gpu" name a person's own direct messages with the app.
        bot = f"@{self._workspace.manifest.bot_name}"
        place = self._workspace.dm(user.id) if where == bot else self._workspace.channel(where)
        if user.id not in place.members:
            raise LookupError(f"{user.name} is not in #{place.name}")
        return user, place

    # ── buttons and menus ────────────────────────────────────────────────────────────────────────

    async def click(
        self,
        who: str,
        channel: str,
        ts: str,
        what: str,
        *,
        value: Any = None,
        block_id: str | None = None,
        version: int | None = None,
    ) -> ActionResult:
        """Press the button `what`, or choose `value` in the menu `what` (action_id, words or value) in a message.

        `version` clicks on the message as it was after that many edits, like a screen that is not up to date.
        """
        user, place = self._at(who, channel)
        message = self._workspace.find_message(place.id, ts)
        if message is None or message.ephemeral_to not in {None, user.id}:
            raise NothingToClick(f"{user.name} sees no message {ts} in {place.name}")
        blocks = message.blocks_at(version)
        state, _ = fill_in(blocks, {}, {})
        action = self._action(*find_element(blocks, what, block_id), value, state)
        payload = payloads.message_action(self._workspace, user, place, message, action, state)
        ack = await self._courier.interaction(payload)
        if ack.error is not None:
            messages.notice(self._workspace, place.id, user.id, f'That did not work: "{ack.error}".')
        return _outcome(ack)

    async def click_in_view(
        self, who: str, view_id: str, what: str, *, value: Any = None, values: Mapping[str, Any] | None = None
    ) -> ActionResult:
        """Press a button or choose in a menu of a modal or home tab; `values` is what is filled in at that moment."""
        view = self._open_view(who, view_id)
        found = find_element(view.blocks, what)
        view.state, _ = fill_in(view.blocks, values or {}, view.state)
        action = self._action(*found, value, view.state)
        user = self._workspace.user(who)
        ack = await self._courier.interaction(payloads.view_action(self._workspace, user, view, action))
        return _outcome(ack)

    def _action(self, block: Json, element: Json, value: Any, state: Json) -> Json:
        """Return the action of one element, and note in the form's `state` what was chosen."""
        kind = element["type"]
        common: Json = {
            "type": kind,
            "action_id": element["action_id"],
            "block_id": block["block_id"],
            "action_ts": self._workspace.next_ts(),
        }
        if kind == "button":
            words = {**element["text"], "emoji": element["text"].get("emoji", True)}
            given: Json = {key: element[key] for key in ("value", "style") if key in element}
            return {**common, "text": words, **given}
        if kind == "overflow":
            return {**common, "selected_option": find_option(element, value)}
        entry = entry_for(element, value)
        state.setdefault(str(block["block_id"]), {})[str(element["action_id"])] = entry
        return {**common, **entry}

    # ── dialogs and the home tab ─────────────────────────────────────────────────────────────────

    def _open_view(self, who: str, view_id: str) -> OpenView:
        user = self._workspace.user(who)
        view = views.open_views(self._workspace).get(view_id)
        if view is None or view.user != user.id:
            raise LookupError(f"{user.name} has no view {view_id} open")
        return view

    async def submit(self, who: str, view_id: str, values: Mapping[str, Any] | None = None) -> ActionResult:
        """Fill in a modal and submit it. A required field left empty stops it before the app receives it."""
        view = self._open_view(who, view_id)
        view.state, complaints = fill_in(view.blocks, values or {}, view.state)
        view.errors = complaints
        if complaints:
            self._workspace.changed()
            return ActionResult(False, NOT_FILLED_IN, errors=complaints)
        user = self._workspace.user(who)
        ack = await self._courier.interaction(payloads.view_submission(self._workspace, user, view))
        outcome = _outcome(ack)
        if ack.error is not None:
            view.errors = {"": TROUBLE}
        else:
            self._after_submit(view, ack.body, outcome)
        self._workspace.changed()
        return outcome

    def _after_submit(self, view: OpenView, answer: Json, outcome: ActionResult) -> None:
        action = answer.get("response_action")
        try:
            if action is None:
                views.close_view(self._workspace, view)
            elif action == "clear":
                views.close_view(self._workspace, view, everything=True)
            elif action == "update":
                views.replace_body(self._workspace, view, views.checked_view(answer.get("view"), "modal"))
            elif action == "push":
                views.push_for(self._workspace, view.user, views.checked_view(answer.get("view"), "modal"))
            elif action == "errors":
                outcome.ok = False
                outcome.errors = view.errors = self._field_errors(view, answer.get("errors"))
            else:
                raise ApiError("unknown_response_action")
        except ApiError as refusal:
            outcome.ok, outcome.error = False, INVALID_RESPONSE
            outcome.response = {"error": refusal.code, **refusal.extra}
            view.errors = {"": TROUBLE}

    def _field_errors(self, view: OpenView, errors: Any) -> dict[str, str]:
        inputs = {block["block_id"] for block in view.blocks if block.get("type") == "input"}
        if not isinstance(errors, dict) or not errors or not set(errors) <= inputs:
            # Slack shows a general failure when an error does not name an input block of the view.
            raise ApiError("invalid_errors", known=sorted(inputs))
        return {str(block_id): str(words) for block_id, words in errors.items()}

    async def close(self, who: str, view_id: str, *, everything: bool = False) -> ActionResult:
        """Close a modal with its close button, or with `everything` the whole stack with the cross."""
        view = self._open_view(who, view_id)
        user = self._workspace.user(who)
        outcome = ActionResult(True)
        for gone in views.close_view(self._workspace, view, everything=everything):
            if gone.body.get("notify_on_close"):
                closed = payloads.view_closed(user, gone, is_cleared=everything)
                outcome = _outcome(await self._courier.interaction(closed))
        return outcome

    async def open_home(self, who: str) -> ActionResult:
        """Open the app's home tab; the app receives the event when it subscribed."""
        user = self._workspace.user(who)
        if not self._workspace.manifest.home_tab:
            return ActionResult(False, "not_enabled")
        if "app_home_opened" in self._workspace.manifest.events:
            home = self._workspace.homes.get(user.id)
            body = payloads.home_opened(self._workspace, user, self._workspace.dm(user.id), home)
            self._courier.event(payloads.event(self._workspace, body))
        return ActionResult(True)


def _outcome(ack: Ack) -> ActionResult:
    return ActionResult(ack.error is None, ack.error, ack.status, ack.took_s, ack.body)


def find_element(blocks: list[Json], what: str, block_id: str | None = None) -> tuple[Json, Json]:
    """Find the block and the element `what`: by action_id, then words, then value. Raises `NothingToClick`.

    An option of a menu is found by its words or value only through its menu.
    """
    found = [
        (block, element)
        for block in messages.flat_blocks(blocks)
        for element in messages.elements_of(block)
        if element.get("type") in messages.INTERACTIVE and block_id in {None, block.get("block_id")}
    ]
    for reading in (_action_id, _words, _value):
        for block, element in found:
            if reading(element) == what:
                return block, element
    there = ", ".join(f"{_action_id(e)} ({_words(e) or e.get('type')})" for _, e in found) or "none"
    raise NothingToClick(f"nothing to click is called {what!r}; there is {there}")


def _action_id(element: Json) -> str:
    return str(element.get("action_id", ""))


def _words(element: Json) -> str:
    text = element.get("text")
    return str(text.get("text", "")) if isinstance(text, dict) else ""


def _value(element: Json) -> str | None:
    value = element.get("value")
    return str(value) if value else None
