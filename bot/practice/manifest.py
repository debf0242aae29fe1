"""The app's manifest.yml, as far as the workspace needs it: commands, scopes, events."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command that the app has registered."""

    name: str
    description: str = ""
    usage_hint: str = ""
    should_escape: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an installation grants. `scopes` None means that nothing was declared and nothing is checked."""

    name: str = "GPU Shopper"
    bot_name: str = "gpu"
    commands: tuple[SlashCommand, ...] = field(
        default=(SlashCommand("/gpu", "Request and approve GPUs", "help", True),)
    )
    scopes: frozenset[str] | None = None
    events: frozenset[str] = frozenset({"app_home_opened"})
    home_tab: bool = True
    messages_tab: bool = True

    def command(self, name: str) -> SlashCommand | None:
        """The registered command of that name."""
        return next((command for command in self.commands if command.name == name), None)


def load_manifest(path: Path | None) -> Manifest:
    """Read `path`; without one, or before it exists, a manifest that registers /gpu and checks no scope.

    ValueError says what is wrong with a file that is there but is no manifest.
    """
    if path is None or not path.exists():
        return Manifest()
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or "display_information" not in data:
        raise ValueError(f"{path} is no Slack app manifest: it needs a display_information section at its top")
    features = data.get("features") or {}
    home = features.get("app_home") or {}
    return Manifest(
        name=str(data["display_information"].get("name", "App")),
        bot_name=str((features.get("bot_user") or {}).get("display_name", "app")),
        commands=tuple(_command(entry) for entry in features.get("slash_commands") or ()),
        scopes=frozenset(((data.get("oauth_config") or {}).get("scopes") or {}).get("bot") or ()),
        events=frozenset(((data.get("settings") or {}).get("event_subscriptions") or {}).get("bot_events") or ()),
        home_tab=bool(home.get("home_tab_enabled", False)),
        messages_tab=bool(home.get("messages_tab_enabled", True)),
    )


def _command(entry: dict[str, Any]) -> SlashCommand:
    return SlashCommand(
        name=str(entry["command"]),
        description=str(entry.get("description", "")),
        usage_hint=str(entry.get("usage_hint", "")),
        should_escape=bool(entry.get("should_escape", False)),
    )
