"""The system's own ssh is given a machine by a name of its own; what people typed is passed on as it was."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from bot.api.schemas.sessions import LoginOut
from bot.cli.access.ssh_client import KEPT_S, destination, operands, remote_paths, shell_words, state_folder

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


def machine(host: str = "203.0.113.7", key: str = KEY) -> LoginOut:
    """The machine of session 4k7m2p, as the service describes it."""
    ids = {"session_id": "ses_01k9x7m2q4d8s3f5", "request_id": "req_01k9x7m2q44k7m2p"}
    return LoginOut(host=host, port=41022, user="user", command="ssh …", host_key=key, **ids)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of this test's own, with a space in its path."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "my state"))
    return tmp_path


@pytest.mark.parametrize("host", ["203.0.113.7", "2001:db8::7"])
def test_ssh_reads_where_to_go_and_which_key_to_expect_beside_a_persons_own_configuration(
    home: Path, host: str
) -> None:
    at = destination(machine(host))
    own = home / "config"
    own.write_text("Host gpu-shopper-*\n  Compression yes\n  Port 1\n  StrictHostKeyChecking no\n")
    read = subprocess.run(  # The installed ssh prints what it would do.
        ["/usr/bin/ssh", "-F", str(own), "-G", *at.options, at.name], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    settings = dict(line.split(" ", 1) for line in read if " " in line)
    assert at.name == "gpu-shopper-4k7m2p"
    for name, value in {
        "hostname": host,
        "port": "41022",
        "user": "user",
        "hostkeyalias": "gpu-shopper-4k7m2p",
        "userknownhostsfile": f'"{state_folder()}/gpu-shopper-4k7m2p"',
        "compression": "yes",
    }.items():
        assert settings[name].strip('"') == value.strip('"'), name
    assert settings["stricthostkeychecking"] in ("true", "yes")


def test_the_host_key_is_in_a_file_that_only_its_owner_reads(home: Path) -> None:
    destination(machine())
    destination(machine(key=f"{KEY[:-1]}m"))
    (file,) = state_folder().iterdir()
    assert file.read_text() == f"gpu-shopper-4k7m2p {KEY[:-1]}m\n"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, state_folder())] == [0o600, 0o700]
    old = state_folder() / "gpu-shopper-older1"
    old.touch()
    past_s = file.stat().st_mtime - KEPT_S - 60
    os.utime(old, (past_s, past_s))
    destination(machine())
    assert list(state_folder().iterdir()) == [file]


@pytest.mark.parametrize(
    ("program", "line", "found"),
    [
        ("scp", "4k7m2p:/data/x .", {0: ("4k7m2p", "/data/x")}),
        ("scp", "-r -i key ./a:b 4k7m2p:", {4: ("4k7m2p", "")}),
        ("scp", "-J jump:22 -oUser=x x 4k7m2p:y", {4: ("4k7m2p", "y")}),
        ("scp", "-rP 2222 4k7m2p:a 4k7m2p:b .", {2: ("4k7m2p", "a"), 3: ("4k7m2p", "b")}),
        ("scp", "data:old 4k7m2p:/x", {0: ("data", "old"), 1: ("4k7m2p", "/x")}),
        ("scp", "me@host:/x ab:c /data/a:b", {}),
        ("rsync", "-av --exclude=*.tmp ses_01k9x7m2q4d8s3f5:/out/ out/", {2: ("ses_01k9x7m2q4d8s3f5", "/out/")}),
    ],
)
def test_a_path_on_a_machine_begins_with_the_session(
    program: str, line: str, found: dict[int, tuple[str, str]]
) -> None:
    assert remote_paths(program, line.split()) == found


def test_the_session_stands_where_ssh_has_the_host() -> None:
    words = ["-v", "-L", "80:x:80", "-oA=b", "-i", "key", "4k7m2p", "ls", "-l"]
    assert words[operands("ssh", words)[0]] == "4k7m2p"


def test_rsync_takes_the_same_ssh(home: Path) -> None:
    at = destination(machine())
    assert shell_words(at).startswith("ssh -o HostName=203.0.113.7 -o Port=41022 -o User=user -o 'UserKnownHostsFile=")
