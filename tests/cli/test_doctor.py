"""`doctor`: what it finds, what it says to do, and its exit code; against stand-ins that really answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.lazy import build
from bot.cli.local import doctor
from bot.cli.local.doctor import Finding, Grade, examine
from bot.clock import SystemClock
from bot.practice.app import Practice
from bot.practice.workspace import Workspace
from bot.services.runtime import agent_archive
from ledger.engine.db import Database
from migrations.run import upgrade
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app
from tests.cli.test_doors import Terminal, elsewhere, terminal
from tests.support import rows
from tests.support.serving import serving

BOT_TOKEN, APP_TOKEN, SIGNING = "xoxb-doctor-123456", "xapp-doctor-123456", "0123456789abcdef0123"

__all__ = ["elsewhere", "terminal"]


@asynccontextmanager
async def installation(monkeypatch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[None]:
    """Everything set and everything answering."""
    workspace = Workspace(SystemClock(), signing_secret=SIGNING, bot_token=BOT_TOKEN, app_token=APP_TOKEN)
    clouds = sandboxes(SystemClock(), SandboxTiming.quick())
    policy = folder / "policy.yml"
    policy.write_text("policy: {approvers: [U0BOB]}")
    practice = Practice(workspace)
    async with practice.serve() as _, serving(build_app(clouds)) as url:
        for name, cloud in clouds.items():
            for variable, value in cloud.environment(f"{url}/{name}").items():
                monkeypatch.setenv(variable, value)
        monkeypatch.setenv("SLACK_BOT_TOKEN", BOT_TOKEN)
        monkeypatch.setenv("SLACK_APP_TOKEN", APP_TOKEN)
        monkeypatch.setenv("SLACK_SIGNING_SECRET", SIGNING)
        monkeypatch.setenv("GPU_SHOPPER_SLACK_API_URL", practice.api_url)
        monkeypatch.setenv("GPU_SHOPPER_POLICY", str(policy))
        yield


def by_area(findings: list[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.area, []).append(finding)
    return found


async def test_a_complete_installation_is_ready(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    async with installation(monkeypatch, elsewhere):
        findings = await examine(offline=False)
    assert not [f for f in findings if f.grade is Grade.BAD]
    found = by_area(findings)
    assert [f.grade for f in found["Slack"]] == [Grade.GOOD, Grade.GOOD]
    assert "Socket Mode" in found["Slack"][0].sentence
    assert "balance $" in found["runpod"][0].sentence
    assert [f.grade for f in found["clock"]] == [Grade.GOOD]
    assert found["ledger"][0].grade is Grade.NOTE
    assert not (elsewhere / "data").exists()


@pytest.mark.parametrize("off", [timedelta(seconds=-600), timedelta(hours=3)])
async def test_a_clock_that_the_clouds_do_not_share_has_to_be_put_right(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path, off: timedelta
) -> None:
    class Off(SystemClock):
        def now(self) -> datetime:
            return super().now() + off

    async with installation(monkeypatch, elsewhere):
        monkeypatch.setattr("bot.cli.local.doctor.SystemClock", Off)
        (bad,) = by_area(await examine(offline=False))["clock"]
    assert bad.grade is Grade.BAD
    assert "this machine's clock shows" in bad.sentence


async def test_a_credential_that_does_not_work_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    async with installation(monkeypatch, elsewhere):
        monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-wrong-987654")
        monkeypatch.setenv("RUNPOD_API_KEY", "rpa_WRONGWRONG")
        found = by_area(await examine(offline=False))
    assert found["Slack"][0].grade is Grade.BAD
    assert "SLACK_BOT_TOKEN: auth.test: invalid_auth" in found["Slack"][0].sentence
    assert "OAuth & Permissions" in found["Slack"][0].do
    assert found["runpod"][0].grade is Grade.BAD
    assert "WRONG" not in str(found)


async def test_offline_calls_nobody(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    async with installation(monkeypatch, elsewhere):
        pass
    findings = await examine(offline=True)
    assert not [f for f in findings if f.grade is Grade.BAD]


async def test_an_env_file_that_others_can_read_has_to_be_closed_first(elsewhere: Path) -> None:
    file = elsewhere / ".env"
    file.touch(mode=0o600)
    assert by_area(await examine(offline=True))["settings"][0].grade is Grade.GOOD
    file.chmod(0o644)
    found = by_area(await examine(offline=True))["settings"][0]
    assert (found.grade, found.do) == (Grade.BAD, "chmod 600 .env")
    assert "mode 0644" in found.sentence


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(), ["doctor", *arguments])
    return result.exit_code, result.stdout


def test_an_empty_installation_says_what_to_set_and_where() -> None:
    code, out = run()
    assert code == 1
    for words in (
        "nobody may approve",
        "SLACK_BOT_TOKEN is not set",
        "api.slack.com/apps",
        "VAST_API_KEY",
        "to do before",
    ):
        assert words in out
    assert "\x1b[" not in out


def test_settings_that_cannot_be_read_are_the_only_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_SHOPPER_PORT", "x")
    code, out = run()
    assert code == 1
    assert "GPU_SHOPPER_PORT" in out
    assert "SLACK" not in out


def test_a_bad_policy_file_is_a_finding(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    policy = elsewhere / "policy.yml"
    policy.write_text("policy: {max_hourz: 1}")
    monkeypatch.setenv("GPU_SHOPPER_POLICY", str(policy))
    assert "max_hourz" in run("--offline")[1]
    policy.write_text("policy: {silent_s: 600}")
    assert "`silent_s` is now called `unresponsive_s`; rename it." in run("--offline")[1]


async def test_a_policy_file_that_others_can_change_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    policy = elsewhere / "policy.yml"
    policy.write_text("policy: {approvers: [U0BOB]}")
    policy.chmod(0o666)
    monkeypatch.setenv("GPU_SHOPPER_POLICY", str(policy))
    (loose,) = by_area(await examine(offline=True))["policy"]
    assert (loose.grade, loose.do) == (Grade.BAD, f"chmod go-w {policy}")
    assert loose.sentence == f"serve would only end sessions: {policy} has mode 0666, so others can change it"
    policy.chmod(0o644)
    assert by_area(await examine(offline=True))["policy"][0].grade is Grade.GOOD


async def test_a_preset_with_a_secret_is_a_finding_and_the_policy_stays_usable(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    policy = elsewhere / "policy.yml"
    policy.write_text(
        "policy: {approvers: [U0BOB], presets: {nightly: '4090 2h run=\"HF_TOKEN=hunter22 python x.py\"', b: 4090 2h}}"
    )
    policy.chmod(0o644)
    monkeypatch.setenv("GPU_SHOPPER_POLICY", str(policy))
    usable, preset = by_area(await examine(offline=True))["policy"]
    assert (usable.grade, preset.grade, preset.do) == (Grade.GOOD, Grade.NOTE, "change it under presets")
    assert preset.sentence.startswith("nobody can use the preset nightly: run= contains a secret. ")
    assert "hunter22" not in preset.sentence


async def test_the_agent_of_machines_is_a_finding_where_they_reach_the_bot(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    monkeypatch.setattr(agent_archive, "BUILT", elsewhere / "agent.pyz")
    assert "agent" not in by_area(await examine(offline=True))
    monkeypatch.setenv("GPU_SHOPPER_NODE_URL", "https://gpu.example.com")
    (missing,) = by_area(await examine(offline=True))["agent"]
    assert (missing.grade, missing.do) == (Grade.NOTE, "make agent (docs/node.md)")
    (elsewhere / "agent.pyz").write_bytes(b"PK")
    (built,) = by_area(await examine(offline=True))["agent"]
    assert (built.grade, "rented machines run it" in built.sentence) == (Grade.GOOD, True)
    monkeypatch.setenv("GPU_SHOPPER_AGENT_FILE", str(elsewhere / "none"))
    (wrong,) = by_area(await examine(offline=True))["agent"]
    assert (wrong.grade, "can't be read" in wrong.sentence) == (Grade.BAD, True)


async def test_the_ledger_is_looked_at_and_left_alone(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    folder = elsewhere / "data"
    folder.mkdir(mode=0o700)
    db = Database(f"sqlite+aiosqlite:///{folder}/gpu-shopper.db")
    missing = by_area(await examine(offline=True))["ledger"][0]
    assert (missing.grade, "is not there yet" in missing.sentence) == (Grade.NOTE, True)
    assert not any(folder.iterdir())
    (folder / "gpu-shopper.db").touch(mode=0o600)
    empty = by_area(await examine(offline=True))["ledger"][0]
    assert (empty.grade, empty.do) == (Grade.NOTE, "gpu-shopper db upgrade")
    await upgrade(db)
    assert by_area(await examine(offline=True))["ledger"][0].grade is Grade.GOOD
    async with db.write() as tx:
        await rows.stray(tx)
    await db.close()
    (lost,) = [one for one in by_area(await examine(offline=True))["vast"] if one.grade is Grade.BAD]
    assert ("none of its keys is set up here" in lost.sentence, lost.do) == (True, "set VAST_API_KEY")
    (folder / "gpu-shopper.db").chmod(0o644)
    loose = by_area(await examine(offline=True))["ledger"][0]
    assert loose.grade is Grade.BAD
    assert "chmod 600" in loose.sentence


def test_hostile_text_cannot_break_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.report([Finding("x", Grade.BAD, "[bold]not markup[/bold] \x1b[31m\nforged", "do [this]")])
    out = capsys.readouterr().out
    assert "[bold]not markup[/bold]" in out
    assert "\x1b[31m" not in out


async def test_doctor_checks_the_service_and_the_key_that_commands_use(terminal: Terminal) -> None:
    t = terminal
    t.far()
    assert "Commands work." in await t.good("doctor")
    for url, key, says in (
        (t.url, "gpuk_wrongwrong", "refuses GPU_SHOPPER_API_KEY"),
        ("http://127.0.0.1:9", t.key, "can't be reached (ConnectError)"),
        (f"{t.url}/elsewhere", t.key, "answered 404, which is not this service"),
    ):
        t.monkeypatch.setenv("GPU_SHOPPER_URL", url)
        t.monkeypatch.setenv("GPU_SHOPPER_API_KEY", key)
        code, out, _ = await t.run("doctor")
        said = " ".join(out.split())
        assert (code, says in said, "1 to do before commands work." in said) == (1, True, True), (url, said)
        assert key not in out
