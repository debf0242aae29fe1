"""`gpu-shopper config` and `completion`: a credential is stored for its owner alone and never shown."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import keyring
import pytest
from dotenv import dotenv_values
from keyring.backend import KeyringBackend
from keyring.backends import fail
from keyring.errors import KeyringLocked
from typer.testing import CliRunner, Result

from bot.cli.lazy import build
from bot.settings import SettingsError, load
from providers.clouds.vast.adapter import VastConfig

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
        assert "SLACK_BOT_TOKEN:" not in done.output  # Nobody is there to be asked.
        # A value in the arguments is stored, with a warning; one from standard input has been seen by nobody.
        warned = "leave it out and you are prompted: gpu-shopper config set vast-key" in " ".join(done.stderr.split())
        assert warned == (not said)
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


def test_at_a_terminal_a_credential_is_prompted_for_and_not_echoed(folder: Path) -> None:
    screen, terminal = pty.openpty()
    command = [str(Path(sys.executable).with_name("gpu-shopper")), "config", "set", "vast-key"]
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=folder, start_new_session=True
    ) as program:
        os.close(terminal)
        shown = os.read(screen, 1_000)
        while b"VAST_API_KEY: " not in shown:  # The space comes when nothing is echoed any more; what came is dropped.
            shown += os.read(screen, 1_000)
        os.write(screen, SECRET.encode() + b"\n")
        while b"stored" not in shown:  # The sentence is wrapped at the width of the terminal.
            shown += os.read(screen, 1_000)
        assert program.wait(60) == 0
    os.close(screen)
    assert SECRET.encode() not in shown
    assert b"list of processes" not in shown
    assert dotenv_values(folder / ".env", interpolate=False) == {"VAST_API_KEY": SECRET}


def test_every_other_line_of_the_file_stays(folder: Path) -> None:
    file = folder / ".env"
    file.write_text("# Clouds\nVAST_API_KEY=old\n\n# GPU_SHOPPER_PORT=3000\nexport A='b' # why\nVAST_API_KEY=older")
    assert run("set", "vastai-key", "new").exit_code == 0
    assert run("set", "runpod-key", "two").exit_code == 0
    kept = "\n# GPU_SHOPPER_PORT=3000\nexport A='b' # why\n"
    assert file.read_text() == f"# Clouds\nVAST_API_KEY='new'\n{kept}RUNPOD_API_KEY='two'\n"
    assert run("unset", "vastai-key").exit_code == 0
    assert file.read_text() == f"# Clouds\n{kept}RUNPOD_API_KEY='two'\n"


@pytest.mark.parametrize(("name", "value"), [("nothing", "x"), ("vastai-key", "a\nb"), ("vastai-key", "\u00e9")])
def test_what_cannot_be_stored(folder: Path, name: str, value: str) -> None:
    assert run("set", name, value).exit_code == 2
    assert not (folder / ".env").exists()


class Keyring(KeyringBackend):
    """A keyring of the library's own kind that keeps what it is given in memory, and may be locked."""

    priority = 1.0

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.is_locked:
            raise KeyringLocked
        self.kept[service, username] = password

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


def test_a_credential_in_the_keyring_is_only_named_in_the_file(folder: Path) -> None:
    before, mine = keyring.get_keyring(), Keyring()
    keyring.set_keyring(mine)
    try:
        done = run("set", "vastai-key", SECRET, "--keyring")
        assert (done.exit_code, SECRET in done.output, "is stored in the keyring" in done.output) == (0, False, True)
        assert mine.kept == {("gpu-shopper", "VAST_API_KEY"): SECRET}
        assert SECRET not in (folder / ".env").read_text()
        assert "in the keyring" in run("list").stdout
        config = load(environ={}).clouds["vast"]
        assert isinstance(config, VastConfig)
        assert config.api_key.get_secret_value() == SECRET
        mine.is_locked = True
        refused = run("set", "runpod-key", "x", "--keyring")
        assert (refused.exit_code, "unlock it and try again" in refused.output) == (78, True)
        mine.is_locked = False
        assert run("unset", "vastai-key").exit_code == 0
        assert mine.kept == {}
        assert run("set", "gpu-shopper-api-key", "gpuk_x").exit_code == 2
        assert run("set", "api-key", "gpuk_x", "--keyring").exit_code == 0
        mine.kept.clear()
        with pytest.raises(SettingsError, match="GPU_SHOPPER_API_KEY: the keyring of this user has no such"):
            load(environ={})
    finally:
        keyring.set_keyring(before)


def test_a_machine_without_a_keyring_is_told_what_to_do(folder: Path) -> None:
    before = keyring.get_keyring()
    none: Any = fail.Keyring
    keyring.set_keyring(none())
    try:
        refused = run("set", "vastai-key", SECRET, "--keyring")
        assert (refused.exit_code, SECRET in refused.output) == (78, False)
        assert "no keyring that can be used, as is usual on servers; without --keyring" in " ".join(
            refused.output.split()
        )
        assert not (folder / ".env").exists()
    finally:
        keyring.set_keyring(before)


def test_the_library_of_the_keyring_is_optional(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    refused = run("set", "vastai-key", SECRET, "--keyring")
    assert (refused.exit_code, "pip install 'gpu-shopper[keyring]'" in refused.output) == (78, True)


def test_a_shell_completes_commands_and_their_options() -> None:
    program = str(Path(sys.executable).parent / "gpu-shopper")
    env = {"_GPU_SHOPPER_COMPLETE": "complete_bash", "COMP_WORDS": "gpu-shopper keys re", "COMP_CWORD": "2"}
    found = subprocess.run([program], env=env, capture_output=True, check=False, text=True)
    assert found.stdout.split() == ["revoke"]
    for shell in ("bash", "zsh", "fish"):
        said = CliRunner().invoke(build(), ["completion", shell])
        assert "_GPU_SHOPPER_COMPLETE" in said.output


def test_the_names_that_people_type_are_known(folder: Path) -> None:
    for name in ("tensordock-key", "vastai-key"):
        assert run("set", name, "-", said="a-key\n").exit_code == 0
    assert dotenv_values(folder / ".env") == {"TENSORDOCK_API_TOKEN": "a-key", "VAST_API_KEY": "a-key"}
    unknown = run("set", "tensordok-key", "-", said="a-key\n")
    assert (unknown.exit_code, unknown.stderr.startswith("Did you mean `gpu-shopper config set tensordock-key`?")) == (
        2,
        True,
    )
    assert 'There is no credential "zzz". Run `gpu-shopper config list`' in run("unset", "zzz").stderr
