"""The command line as people use it: help, version, schema, sandbox, and clear ends for bad settings."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import typer
from typer.testing import CliRunner

from bot.cli.access.job_file import line_of
from bot.cli.command_table import COMMANDS
from bot.cli.demo import practice, sandbox
from bot.cli.lazy import AS_IN_SLACK, build
from bot.clock import SystemClock
from bot.practice.app import Practice
from bot.practice.workspace import Workspace
from providers.sandbox.clock import SandboxTiming

PROGRAM = str(Path(sys.executable).parent / "gpu-shopper")
LIMIT_S = 60


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without a `.env`, an environment without our settings, and a data folder of the test's own.

    Commands set up logging and the umask for their process; here both are put back.
    """
    mask = os.umask(0o022)
    os.umask(mask)
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    for name in list(os.environ):
        if name.startswith(("GPU_SHOPPER_", "SLACK_", "RUNPOD_", "VAST_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_SHOPPER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    yield tmp_path
    root.handlers[:] = handlers
    root.setLevel(level)
    os.umask(mask)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build(), arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_help_names_every_command_but_the_hidden_ones() -> None:
    code, out, _ = run("--help")
    assert code == 0
    panels = [line.strip("╭─╮ ") for line in out.splitlines() if line.startswith("╭─")]
    assert panels == ["Options", "Start here", "Market", "Requests", "Sessions", "Money", "Administration"]
    for name, entry in COMMANDS.items():
        assert (re.search(rf"\b{name}\b .*{re.escape(entry.help.split()[0])}", out) is not None) is not entry.hidden


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_has_help(name: str) -> None:
    code, out, _ = run(name, "--help")
    assert code == 0
    assert "Usage" in out
    assert "--install-completion" not in out


def test_help_is_asked_for_in_several_ways_and_flags_show_no_value() -> None:
    code, out, _ = run("help", "extend")
    assert (code, out) == (0, run("extend", "-h")[1])
    assert "--json" in out
    assert "<bool>" not in out
    assert run("help") == run("--help")


@pytest.mark.parametrize(("in_slack", "here"), AS_IN_SLACK.items())
def test_a_name_of_slack_is_taken_for_the_command_here(in_slack: str, here: str) -> None:
    assert run(in_slack, "--help") == run(here, "--help")


def test_each_line_of_the_help_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run("--help")
    lines = {line.strip("│ ") for line in out.splitlines()}
    width = max(map(len, COMMANDS))
    for name, entry in COMMANDS.items():
        assert entry.hidden or f"{name:<{width}}  {entry.help}" in lines, name


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("requests --most abc", "--most must be a whole number."),
        ("requests --most 0", "--most must be at least 1."),
        ("requests --most 99999", "--most must be at most 10000."),
        ("requests --wating", "Did you mean --waiting? There is no option --wating."),
        ("requests --qqq", "There is no option --qqq."),
        ("sessions zzz", 'This command takes no "zzz".'),
        ("approve", "REQUEST is missing. `gpu-shopper requests --waiting` lists those that can be approved."),
        (
            "keys lst",
            'Did you mean `root keys list`? There is no command "lst" here; there are create, list, revoke.',
        ),
        ("adopt orp_123456", "--hours is missing."),
        ("db upgrade a b", 'This command takes no "b".'),
        (
            "costs dayly",
            (
                "“dayly” is not one of hourly, daily, monthly, total, day, month, year, today, mine, team. "
                "Did you mean daily?"
            ),
        ),
        ("--nonsense", "There is no option --nonsense."),
    ],
)
def test_a_wrong_command_line_is_answered_in_one_sentence(typed: str, says: str) -> None:
    code, out, err = run(*typed.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"{says} Run `")
    assert err.endswith(" --help`.\n")


def test_an_unknown_command_is_a_usage_error() -> None:
    code, _, err = run("provide")
    assert code == 2
    assert 'There is no command "provide"' in err


def test_help_of_the_real_program_loads_none_of_the_commands() -> None:
    script = (
        "import sys\n"
        "sys.argv = ['gpu-shopper', '--help']\n"
        "from bot.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'sqlalchemy', 'httpx', 'fastapi', 'slack_bolt', 'uvicorn', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'loaded for nothing: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout


def test_version_of_the_real_program() -> None:
    done = subprocess.run([PROGRAM, "version"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert re.fullmatch(r"gpu-shopper \d+\.\d+\.\d+ \(Python \d+\.\d+\.\d+\)\n", done.stdout)
    assert run("version")[1] == done.stdout


def test_the_schema_goes_up_and_is_checked(elsewhere: Path) -> None:
    for reads in (("db", "current"), ("db", "check")):
        code, _, err = run(*reads)
        assert (code, "gpu-shopper.db is not there yet" in err) == (78, True)
    assert not (elsewhere / "data").exists()  # What only reads makes no ledger.
    assert "The ledger is at 0" in run("db", "upgrade")[1]
    assert (elsewhere / "data" / "gpu-shopper.db").stat().st_mode & 0o077 == 0
    code, out, _ = run("db", "current")
    at, newest, oldest = re.findall(r"\d{4}", out)
    assert (code, at) == (0, newest)
    assert out == f"{at} (newest: {newest}, readable from {oldest} on)\n"
    assert json.loads(run("db", "current", "--json")[1]) == {"revision": at, "newest": newest, "readable_from": oldest}
    assert run("db", "check") == (0, "The tables and the models agree.\n", "")
    assert run("db", "check", "--fresh")[0] == 0
    code, out, err = run("db", "downgrade", "base")
    assert (code, out) == (1, "")
    assert "The ledger can't go back below revision 0044" in err
    assert run("db", "current")[1].startswith(f"{at} ")


def test_a_ledger_from_before_the_baseline_is_refused_and_stays_as_it_is(elsewhere: Path) -> None:
    run("db", "upgrade")
    with sqlite3.connect(elsewhere / "data" / "gpu-shopper.db") as ledger:
        ledger.execute("UPDATE alembic_version SET version_num = '0037'")
    ledger.close()
    said = (
        "The ledger is at revision 0037, and this program upgrades ledgers from revision 0044 on. "
        "Check out commit f8386fd and run gpu-shopper db upgrade there; then this version opens it. "
        "Or set GPU_SHOPPER_DATABASE_URL to a new database."
    )
    for command in ("db upgrade", "db downgrade -1", "db check", "sessions", "unreachable list"):
        code, out, err = run(*command.split())
        assert (command, code, out, " ".join(err.split())) == (command, 1, "", said)
    code, out, _ = run("doctor", "--offline")
    assert (code, said in " ".join(out.split())) == (1, True)
    assert run("db", "current")[1].startswith("0037 (newest: ")


def test_a_revision_that_does_not_exist_is_explained() -> None:
    code, _, err = run("db", "upgrade", "9999")
    assert code == 1
    assert "9999" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("GPU_SHOPPER_PORT", "x", "GPU_SHOPPER_PORT: "),
        ("GPU_SHOPPER_DATABASE_URL", "mysql://u:hunter2@h/n", "sqlite+aiosqlite:///"),
        ("GPU_SHOPPER_DATABASE_URL", "not a url", "URL"),
        ("GPU_SHOPPER_DATABASE_URL", "sqlite+aiosqlite:////proc/none/x.db", "/proc/none"),
    ],
)
def test_bad_settings_end_with_a_sentence(monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
    monkeypatch.setenv(name, value)
    code, out, err = run("db", "current")
    assert code == 78
    assert says in err
    assert "Traceback" not in out + err
    assert "hunter2" not in out + err


def test_serve_says_what_is_missing_and_ends() -> None:
    code, _, err = run("serve")
    assert code == 78
    assert "Slack needs SLACK_BOT_TOKEN and SLACK_SIGNING_SECRET" in err


def test_a_sandbox_on_a_taken_port_is_explained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = run("sandbox", "--port", str(taken.getsockname()[1]))
    assert code == 1
    assert "or give --port 0" in err


async def test_stand_ins_say_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    stopping = asyncio.Event()
    stopping.set()
    await sandbox.serve_until(stopping, 0, 7, SandboxTiming.quick())
    out = capsys.readouterr().out
    assert "export VAST_URL=http://127.0.0.1:" in out
    workspace = Workspace(SystemClock(), signing_secret="0123456789abcdef", bot_token="xoxb-practice")
    await practice.serve_until(stopping, Practice(workspace), 0)
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The real program, stopped at the end of the block if it still runs."""
    process = subprocess.Popen(
        [PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.slow
def test_the_sandbox_serves_every_cloud_and_ends_at_ctrl_c() -> None:
    with started("sandbox", "--port", "0", "--quick") as process:
        assert process.stdout is not None
        exports: dict[str, str] = {}
        while "RUNPOD_API_BASE_URL" not in exports:
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").strip().partition("=")
                exports[name] = value
        headers = {"Authorization": f"Bearer {exports['RUNPOD_API_KEY']}"}
        answer = httpx.get(f"{exports['RUNPOD_REST_V2_URL']}/pods", headers=headers, trust_env=False)
        assert answer.status_code == 200
        assert httpx.get(exports["VAST_URL"] + "/api/v0/instances/", trust_env=False).status_code in (401, 403)
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)


@pytest.mark.slow
def test_the_practice_workspace_serves_alone() -> None:
    secrets = ("--signing-secret", "0123456789abcdef", "--bot-token", "xoxb-practice")
    with started("practice", *secrets) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        answer = httpx.post(f"{url}/api/auth.test", headers={"Authorization": "Bearer xoxb-practice"}, trust_env=False)
        assert answer.json()["ok"] is True
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


def test_a_misspelt_command_is_answered_with_the_nearest_one() -> None:
    code, _, why = run("sesions")
    guess = 'Did you mean `gpu-shopper sessions`? There is no command "sesions".'
    assert (code, why.startswith(guess)) == (2, True)
    code, _, why = run("qqqqq")
    assert (code, why) == (2, 'There is no command "qqqqq". Run `gpu-shopper --help` for all commands.\n')


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("costs", "dayly"),
            "“dayly” is not one of hourly, daily, monthly, total, day, month, year, today, mine, team. Did you mean",
        ),
        (("budget", "set", "global", "dayly", "3"), "is not one of hourly, daily, monthly, total. Did you mean daily?"),
        (("budget", "set", "global", "daily", "lots"), "'lots' is not an amount; write 300 or $299.50"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_nearest_one(arguments: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(build(), arguments)
    assert (result.exit_code, says in " ".join(result.output.replace("│", " ").split())) == (2, True), result.output


def test_a_value_with_spaces_keeps_the_quotes_that_it_needs() -> None:
    assert (
        line_of(['run=python -c "print(1)"', "for=a try", "max=5"]) == 'run=\'python -c "print(1)"\' for="a try" max=5'
    )
    with pytest.raises(typer.Exit) as ended:
        line_of(["run=echo \"a\" 'b'"])
    assert ended.value.exit_code == 2
