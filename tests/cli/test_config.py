"""`gpu-shopper config` and `completion`: a credential is stored for its owner alone and never shown."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from dotenv import dotenv_values
from typer.testing import CliRunner, Result

from bot.cli.lazy import build
from bot.settings import load

SECRET = "v-7f\\x'\"$HOME#1"


def run(*arguments: str, said: str = "") -> Result:
    return CliRunner().invoke(build(), ["config", *arguments], input=said)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("VAST_API_KEY", "RUNPOD_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_credential_is_stored_for_its_owner_alone(folder: Path) -> None:
    for arguments, said in (
        (("vastai-key", SECRET), ""),
        (("RUNPOD_API_KEY", "-"), "two\n"),
        (("slack-bot-token",), "xoxb-3\n"),
    ):
        done = run("set", *arguments, said=said)
        assert done.exit_code == 0, done.output
        assert SECRET not in done.output
        assert "xoxb-3" not in done.output
    file = folder / ".env"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert dotenv_values(file, interpolate=False) == {
        "VAST_API_KEY": SECRET,
        "RUNPOD_API_KEY": "two",
        "SLACK_BOT_TOKEN": "xoxb-3",
    }
    assert [path.name for path in folder.iterdir()] == [".env"]
    assert {"vast", "runpod"} <= set(load(environ={}).clouds)
    listed = run("list")
    assert "two" not in listed.stdout.split()
    assert SECRET not in listed.stdout
    assert [line.split()[2:4] for line in listed.stdout.splitlines() if "VAST_API_KEY" in line] == [["in", ".env"]]
    assert run("unset", "vastai-key").exit_code == 0
    assert run("unset", "vastai-key").exit_code == 1
    assert "VAST_API_KEY" not in file.read_text()


@pytest.mark.parametrize(("name", "value"), [("nothing", "x"), ("vastai-key", "a\nb"), ("vastai-key", "\u00e9")])
def test_what_cannot_be_stored(folder: Path, name: str, value: str) -> None:
    assert run("set", name, value).exit_code == 2
    assert not (folder / ".env").exists()


def test_a_shell_completes_commands_and_their_options() -> None:
    program = str(Path(sys.executable).parent / "gpu-shopper")
    env = {"_GPU_SHOPPER_COMPLETE": "complete_bash", "COMP_WORDS": "gpu-shopper keys re", "COMP_CWORD": "2"}
    found = subprocess.run([program], env=env, capture_output=True, check=False, text=True)
    assert found.stdout.split() == ["revoke"]
    for shell in ("bash", "zsh", "fish"):
        said = CliRunner().invoke(build(), ["completion", shell])
        assert "_GPU_SHOPPER_COMPLETE" in said.output
