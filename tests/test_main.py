"""The whole process: ordered start and stop, one per file, and refusals that say what to do."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import stat
import subprocess
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from bot.cli.access.settings import BAD_SETTINGS
from bot.clock import SystemClock
from bot.main import CannotServe, listen, only_one, serve, slack_settings
from bot.practice.app import Practice
from bot.practice.workspace import Workspace
from bot.services.runtime.ends_copy import NAME
from bot.settings import Settings, load
from bot.startup import refuse_loose_modes
from ledger.engine.db import Database
from migrations.run import SchemaError, current, newest
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app
from tests.cli.test_commands import LIMIT_S, PROGRAM
from tests.support.serving import serving

SIGNING, BOT_TOKEN, APP_TOKEN = "0123456789abcdef0123", "xoxb-serve-0123456789", "xapp-serve-0123456789"
READY_S = 20.0


@dataclass
class Around:
    """What a bot needs around it: a workspace, clouds, and the environment that points at them."""

    practice: Practice
    environ: dict[str, str]

    def settings(self, **changes: str) -> Settings:
        return load(env_file=None, environ={**self.environ, **changes})


@asynccontextmanager
async def surroundings(folder: Path, *, socket_mode: bool = False) -> AsyncIterator[Around]:
    token = APP_TOKEN if socket_mode else ""
    practice = Practice(Workspace(SystemClock(), signing_secret=SIGNING, bot_token=BOT_TOKEN, app_token=token))
    clouds = sandboxes(SystemClock(), SandboxTiming.quick())
    policy = folder / "policy.yml"
    policy.write_text("policy: {approvers: [U0BOB]}\ntiming: {tick_s: 0.1}\n")
    async with practice.serve(), serving(build_app(clouds)) as url:
        environ = {
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_SIGNING_SECRET": SIGNING,
            "SLACK_APP_TOKEN": token,
            "GPU_SHOPPER_SLACK_API_URL": practice.api_url,
            "GPU_SHOPPER_POLICY": str(policy),
            "GPU_SHOPPER_DATA_DIR": str(folder / "data"),
            "GPU_SHOPPER_PORT": "0",
            "GPU_SHOPPER_PRACTICE": "yes",
        }
        for name, cloud in clouds.items():
            environ |= cloud.environment(f"{url}/{name}")
        yield Around(practice, environ)


@asynccontextmanager
async def running(around: Around, settings: Settings) -> AsyncIterator[str]:
    """The bot in this process, ended by a real SIGTERM; yields its address."""
    said: asyncio.Queue[str] = asyncio.Queue()
    task = asyncio.create_task(serve(settings, SystemClock(), on_ready=said.put_nowait))
    # A process that fails to start puts nothing into the queue, so its error is looked for as well.
    task.add_done_callback(lambda ended: said.put_nowait("ended"))
    greeting = await asyncio.wait_for(said.get(), READY_S)
    if greeting == "ended":
        await task
    port = re.search(r"serving on 127\.0\.0\.1:(\d+)", greeting)
    assert port is not None
    url = f"http://127.0.0.1:{port[1]}"
    around.practice.workspace.request_url = None if settings.socket_mode else f"{url}/slack/events"
    yield url
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, READY_S)


@pytest.mark.slow
@pytest.mark.parametrize("socket_mode", [False, True], ids=["http", "socket"])
async def test_it_serves_slack_and_health_until_sigterm(tmp_path: Path, socket_mode: bool) -> None:
    async with surroundings(tmp_path, socket_mode=socket_mode) as around:
        settings = around.settings()
        async with running(around, settings) as url, httpx.AsyncClient(trust_env=False, base_url=url) as client:
            assert (await client.get("/healthz")).status_code == 200
            async with asyncio.timeout(READY_S):  # A cloud must have confirmed the clock.
                while (ready := await client.get("/readyz")).status_code != 200:
                    assert not ready.json()["checks"]["confirmed"]
                    await asyncio.sleep(0.05)
            assert ready.json()["checks"] == dict.fromkeys(
                ("ledger", "ticker", "clock", "confirmed", "writable", "ends"), True
            )
            alice = around.practice.driver.as_("alice")
            assert (await alice.command("/gpu help")).ok
            forged = await client.post("/slack/events", content=b"payload={}")
            assert forged.status_code == (404 if socket_mode else 401)
            said = rf"another gpu-shopper serve works on .*\(process {os.getpid()}\)"
            with pytest.raises(CannotServe, match=said), only_one(settings.sqlite_file, allow_shared=False):
                pytest.fail("two may not have it")
        data = tmp_path / "data"
        assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in (data, *data.iterdir()))
        with only_one(settings.sqlite_file, allow_shared=False):
            pass


async def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotServe, match=f"port {port} on 127.0.0.1"):
            listen("127.0.0.1", port)
    if socket.has_ipv6:
        with listen("::1", 0) as six:
            assert six.family is socket.AF_INET6


@pytest.mark.parametrize(
    ("without", "says"),
    [
        (("SLACK_BOT_TOKEN",), "Slack needs SLACK_BOT_TOKEN; gpu-shopper doctor"),
        (("SLACK_SIGNING_SECRET",), "Slack needs SLACK_SIGNING_SECRET"),
        (
            [name for entry in REGISTRY.values() for name in (*entry.required, *entry.alternative)],
            "no cloud has its credentials set",
        ),
    ],
)
async def test_it_refuses_to_start_without_what_it_needs(tmp_path: Path, without: Iterable[str], says: str) -> None:
    async with surroundings(tmp_path) as around:
        with pytest.raises(CannotServe, match=says):
            await serve(around.settings(**dict.fromkeys(without, "")), SystemClock())


@pytest.mark.slow
async def test_an_old_schema_is_upgraded_or_refused(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as around:
        settings = around.settings()
        with pytest.raises(SchemaError, match="There is no ledger here yet"):
            await serve(settings, SystemClock(), migrate=False)
        async with running(around, settings):
            pass
        (tmp_path / "data" / NAME).unlink()  # With it the process would serve ends only, and wait.
        db = Database(settings.database)
        assert await current(db) == newest()
        async with db.write() as tx:
            await tx.execute(text("UPDATE alembic_version SET version_num = '0037'"))
        for migrate in (True, False):
            with pytest.raises(
                SchemaError, match="at revision 0037, and this program upgrades ledgers from revision 0044"
            ):
                await serve(settings, SystemClock(), migrate=migrate)
        await db.close()


def test_loose_modes_are_refused(tmp_path: Path) -> None:
    settings = load(env_file=None, environ={"GPU_SHOPPER_DATA_DIR": str(tmp_path / "data")})
    refuse_loose_modes(settings)
    file = tmp_path / "data" / "gpu-shopper.db"
    file.touch(mode=0o600)
    refuse_loose_modes(settings)
    file.chmod(0o640)
    with pytest.raises(ValueError, match=r"mode 0640.*chmod 600"):
        refuse_loose_modes(settings)


def test_an_env_file_that_others_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(env_file=None, environ={"GPU_SHOPPER_DATA_DIR": str(tmp_path / "data")})
    file = tmp_path / ".env"
    file.touch(mode=0o600)
    refuse_loose_modes(settings)
    for mode in (0o640, 0o604):
        file.chmod(mode)
        with pytest.raises(ValueError, match=r"\.env has mode 06\d\d.*chmod 600 \.env"):
            refuse_loose_modes(settings)


def test_several_may_share_a_ledger_that_is_not_a_file_or_when_told_so(tmp_path: Path) -> None:
    for file in (None, tmp_path / "x.db"):
        with only_one(file, allow_shared=True), only_one(file, allow_shared=True):
            pass


def test_http_mode_keeps_the_app_level_token_out_of_the_door() -> None:
    environ = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "SLACK_SIGNING_SECRET": SIGNING}
    assert slack_settings(load(env_file=None, environ=environ)).app_token == APP_TOKEN
    http = load(env_file=None, environ={**environ, "GPU_SHOPPER_SLACK_MODE": "http"})
    assert slack_settings(http).app_token is None


def start(
    environ: dict[str, str], folder: Path, command: Sequence[str] = (PROGRAM, "serve")
) -> tuple[subprocess.Popen[str], str]:
    """The real program and its address; returns when it serves."""
    clean = {name: value for name, value in os.environ.items() if name not in environ}
    process = subprocess.Popen(
        command, env={**clean, **environ, "GPU_SHOPPER_LOG_FORMAT": "json"}, cwd=folder,
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    seen = ""
    while (serving_on := re.search(r"serving on (127\.0\.0\.1:\d+)", seen)) is None:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    return process, f"http://{serving_on[1]}"


@pytest.mark.slow
async def test_the_program_survives_a_kill_and_ends_cleanly_at_sigterm(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as around:
        killed, _ = await asyncio.to_thread(start, around.environ, tmp_path)
        second = await asyncio.to_thread(
            subprocess.run, [PROGRAM, "serve"], env={**os.environ, **around.environ}, cwd=tmp_path,
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        assert second.returncode == BAD_SETTINGS
        assert f"(process {killed.pid})" in second.stderr
        killed.kill()
        killed.communicate()
        again, _ = await asyncio.to_thread(start, around.environ, tmp_path)
        again.send_signal(signal.SIGTERM)
        _, err = await asyncio.to_thread(again.communicate, timeout=LIMIT_S)
    assert again.returncode == 0
    assert '"event": "stopped"' in err
    assert all(secret not in err for secret in (SIGNING, BOT_TOKEN))
