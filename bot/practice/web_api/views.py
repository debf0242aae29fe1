"""Answer views.*."""

from __future__ import annotations

from bot.practice import views
from bot.practice.model import Json
from bot.practice.workspace import Workspace


def open_view(workspace: Workspace, arguments: Json) -> Json:
    """Answer views.open."""
    return {"view": views.open_view(workspace, arguments.get("trigger_id"), arguments.get("view")).to_json()}


def push_view(workspace: Workspace, arguments: Json) -> Json:
    """Answer views.push."""
    return {"view": views.push_view(workspace, arguments.get("trigger_id"), arguments.get("view")).to_json()}


def update_view(workspace: Workspace, arguments: Json) -> Json:
    """Answer views.update, by view_id or external_id."""
    view = views.update_view(
        workspace,
        arguments.get("view_id"),
        arguments.get("external_id"),
        arguments.get("view"),
        arguments.get("hash"),
    )
    return {"view": view.to_json()}


def publish_view(workspace: Workspace, arguments: Json) -> Json:
    """Answer views.publish."""
    view = views.publish_view(workspace, arguments.get("user_id"), arguments.get("view"), arguments.get("hash"))
    return {"view": view.to_json()}
