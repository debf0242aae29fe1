"""Open, push, update, publish and close modals and home tabs."""

from __future__ import annotations

import secrets
from typing import Any, Final

from bot.blockkit import validate_view
from bot.practice.messages import named_blocks, parse_json_argument
from bot.practice.model import ApiError, Json, OpenView, invalid_arguments
from bot.practice.workspace import Workspace

STACK_MAX: Final = 3


def checked_view(value: Any, kind: str | None = None) -> Json:
    """Return a view's body after every check. Raises `ApiError` as views.open does."""
    body = parse_json_argument(value, "view")
    if not isinstance(body, dict):
        raise invalid_arguments(["missing required field: view"])
    errors = validate_view(body)
    if kind is not None and body.get("type") != kind:
        errors.append(f"must be a {kind} view [json-pointer:/view/type]")
    if any(error.startswith("view_too_large") for error in errors):
        raise ApiError("view_too_large")
    if errors:
        raise invalid_arguments(errors, errors=errors)
    return {**body, "blocks": named_blocks(body["blocks"])}


def _new_hash(workspace: Workspace) -> str:
    return f"{int(workspace.clock.now().timestamp())}.{secrets.token_hex(4)}"


def _new_view(workspace: Workspace, user_id: str, body: Json, previous: OpenView | None) -> OpenView:
    identifier = workspace.new_id("V0")
    root = previous.root_id if previous else identifier
    view = OpenView(identifier, user_id, body, _new_hash(workspace), root, previous.id if previous else None)
    workspace.views[view.id] = view
    return view


def open_view(workspace: Workspace, arguments: Json) -> Json:
    """Answer views.open: show a modal to the person whose trigger this is, in place of one that is open already."""
    user_id = workspace.use_trigger(arguments.get("trigger_id"))
    view = _new_view(workspace, user_id, checked_view(arguments.get("view"), "modal"), None)
    workspace.stacks[user_id] = [view]
    workspace.changed()
    return {"view": view.to_json()}


def push_view(workspace: Workspace, arguments: Json) -> Json:
    """Answer views.push: put a modal on top of the open ones, at most three."""
    user_id = workspace.use_trigger(arguments.get("trigger_id"))
    return {"view": push_for(workspace, user_id, checked_view(arguments.get("view"), "modal")).to_json()}


def push_for(workspace: Workspace, user_id: str, body: Json) -> OpenView:
    """Put a checked modal on top of somebody's stack. Raises `ApiError`."""
    stack = workspace.stacks.setdefault(user_id, [])
    if not stack:
        raise ApiError("not_found")
    if len(stack) >= STACK_MAX:
        raise ApiError("push_limit_reached")
    view = _new_view(workspace, user_id, body, stack[-1])
    stack.append(view)
    workspace.changed()
    return view


def update_view(workspace: Workspace, arguments: Json) -> Json:
    """Answer views.update, by view_id or external_id: `not_found` once it is closed, `hash_conflict` after a change."""
    view_id, external_id = arguments.get("view_id"), arguments.get("external_id")
    view = open_views(workspace).get(view_id) if isinstance(view_id, str) else None
    if view is None and isinstance(external_id, str) and external_id:
        view = next((v for v in open_views(workspace).values() if v.body.get("external_id") == external_id), None)
    if view is None:
        raise ApiError("not_found")
    _same_hash(view, arguments)
    return {"view": replace_body(workspace, view, checked_view(arguments.get("view"), view.type)).to_json()}


def _same_hash(view: OpenView, arguments: Json) -> None:
    if arguments.get("hash") not in (None, "", view.hash):
        raise ApiError("hash_conflict")


def replace_body(workspace: Workspace, view: OpenView, body: Json) -> OpenView:
    """Give an open view a new, checked body; the text in inputs that stay is kept."""
    kept = {str(block["block_id"]) for block in body["blocks"]}
    view.body = body
    view.hash = _new_hash(workspace)
    view.version += 1
    view.errors = {}
    view.state = {block_id: value for block_id, value in view.state.items() if block_id in kept}
    workspace.changed()
    return view


def publish_view(workspace: Workspace, arguments: Json) -> Json:
    """Answer views.publish: set somebody's home tab. Raises `ApiError`."""
    user_id = arguments.get("user_id")
    if not workspace.manifest.home_tab:
        raise ApiError("not_enabled")
    if not isinstance(user_id, str) or user_id not in workspace.users:
        raise ApiError("user_not_found")
    body = checked_view(arguments.get("view"), "home")
    view = workspace.homes.get(user_id)
    if view is None:
        view = workspace.homes[user_id] = _new_view(workspace, user_id, body, None)
        workspace.changed()
    else:
        _same_hash(view, arguments)
        replace_body(workspace, view, body)
    return {"view": view.to_json()}


def open_views(workspace: Workspace) -> dict[str, OpenView]:
    """Return every modal on a screen and every home tab, by id."""
    shown = [view for stack in workspace.stacks.values() for view in stack]
    return {view.id: view for view in (*shown, *workspace.homes.values())}


def close_view(workspace: Workspace, view: OpenView, *, everything: bool = False) -> list[OpenView]:
    """Close a modal, with `everything` the whole stack. Returns the views that were closed."""
    stack = workspace.stacks.get(view.user, [])
    gone = [v for v in stack if everything or v.id == view.id]
    workspace.stacks[view.user] = [v for v in stack if v not in gone]
    workspace.changed()
    return gone
