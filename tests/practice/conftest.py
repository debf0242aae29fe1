from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.clock import TravelClock
from bot.practice.app import Practice
from bot.practice.driver import Driver
from bot.practice.server import serve_on_loopback
from bot.practice.workspace import Workspace
from tests.practice.echo_app import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, EchoApp

MANIFEST = """
display_information: {name: GPU Echo}
features:
  app_home: {home_tab_enabled: true, messages_tab_enabled: true}
  bot_user: {display_name: gpu}
  slash_commands:
    - {command: /gpu, description: Request GPUs, usage_hint: "provision 1xH100 2h | list | help", should_escape: true}
oauth_config:
  scopes: {bot: [commands, "chat:write", "users:read", "users:read.email", "usergroups:read", "files:write"]}
settings:
  event_subscriptions: {bot_events: [app_home_opened, message.channels]}
"""


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    # The Slack library takes a proxy from the environment even for loopback addresses.
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clock() -> TravelClock:
    return TravelClock()


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "manifest.yml"
    path.write_text(MANIFEST)
    return path


@pytest.fixture
def workspace(clock: TravelClock, manifest: Path) -> Workspace:
    return Workspace(
        clock,
        signing_secret=SIGNING_SECRET,
        bot_token=BOT_TOKEN,
        app_token=APP_TOKEN,
        manifest=manifest,
    )


@pytest.fixture
async def practice(workspace: Workspace) -> AsyncIterator[Practice]:
    practice = Practice(workspace)
    async with practice.serve():
        yield practice


@pytest.fixture
async def echo(practice: Practice) -> AsyncIterator[EchoApp]:
    """The echo app on HTTP, installed in the workspace."""
    app = EchoApp(practice.api_url)
    async with serve_on_loopback(app.asgi) as url:
        practice.workspace.request_url = f"{url}/slack/events"
        yield app


@pytest.fixture
def ws(practice: Practice, echo: EchoApp) -> Driver:
    return practice.driver
