"""The script that starts a named program, run by a real shell: what it starts and finds, and where its token goes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bot.rules.nodes.named_programs import (
    NAMED_PROGRAMS,
    NamedProgram,
    Start,
    StartFound,
    read_start,
    start_script,
)

TOKEN = "t0ken"
LISTENS = """\
#!{python}
import os, socket, sys, time
open("{folder}/seen", "w").write(" ".join(sys.argv[1:]) + "|" + os.environ.get("A_TOKEN", "") + "|" + os.getcwd())
with socket.create_server(("127.0.0.1", {port})):
    time.sleep(60)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def program(tmp_path: Path) -> Iterator[NamedProgram]:
    """A program on a free port, which ends with the test."""
    (tmp_path / "home").mkdir()
    (tmp_path / "bin").mkdir()
    yield NamedProgram("pages", free_port(), ("pages", "--root", "a b"), "pages", "/lab", "A_TOKEN")
    kept = tmp_path / "home/.gpu-shopper/pages/pid"
    if kept.exists():
        os.kill(int(kept.read_text()), signal.SIGKILL)


def run(tmp_path: Path, program: NamedProgram) -> StartFound:
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    ran = subprocess.run(
        ["sh", "-c", start_script(program)], env=env, input=f"{TOKEN}\n", capture_output=True, text=True, check=True
    )
    return read_start(ran.stdout)


def written(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bin/pages"
    file.write_text(text)
    file.chmod(0o755)


@pytest.mark.slow
def test_it_is_started_once_behind_its_token_and_found_again(tmp_path: Path, program: NamedProgram) -> None:
    written(tmp_path, LISTENS.format(python=sys.executable, folder=tmp_path, port=program.port))
    assert run(tmp_path, program) == StartFound(Start.STARTED, TOKEN)
    assert (tmp_path / "seen").read_text() == f"--root a b|{TOKEN}|{tmp_path / 'home'}"
    kept = tmp_path / "home/.gpu-shopper/pages"
    assert (kept / "token").stat().st_mode & 0o777 == 0o600
    first = (kept / "pid").read_text()
    # Its process left the session of the login, so a dropped connection does not end it.
    assert os.getsid(int(first)) == int(first)
    assert run(tmp_path, program) == StartFound(Start.OWN, TOKEN)
    assert (kept / "pid").read_text() == first


@pytest.mark.slow
def test_what_somebody_else_started_there_is_left_alone(tmp_path: Path, program: NamedProgram) -> None:
    with closing(socket.create_server(("127.0.0.1", program.port))):
        assert run(tmp_path, program) == StartFound(Start.OTHER)
    assert not (tmp_path / "home/.gpu-shopper/pages/pid").exists()


@pytest.mark.slow
def test_a_program_that_is_missing_or_ends_says_so(tmp_path: Path, program: NamedProgram) -> None:
    assert run(tmp_path, program) == StartFound(Start.MISSING)
    written(tmp_path, "#!/bin/sh\necho no config\nexit 3\n")
    assert run(tmp_path, program) == StartFound(Start.FAILED, log="no config")
    (tmp_path / "home/.gpu-shopper/pages/pid").unlink()


def test_the_token_is_no_word_of_the_command() -> None:
    for one in NAMED_PROGRAMS.values():
        assert "127.0.0.1" in " ".join(one.argv)
        assert not any("token" in word for word in one.argv)
    assert 'JUPYTER_TOKEN="$token" setsid' in start_script(NAMED_PROGRAMS["jupyter"])
    assert "\nsetsid" in start_script(NAMED_PROGRAMS["tensorboard"])


def test_the_address_has_the_token_where_there_is_one() -> None:
    jupyter, tensorboard = NAMED_PROGRAMS["jupyter"], NAMED_PROGRAMS["tensorboard"]
    assert jupyter.address(9000, TOKEN) == "http://localhost:9000/lab?token=t0ken"
    assert jupyter.address(8888, "") == "http://localhost:8888/lab"
    assert tensorboard.address(6006, TOKEN) == "http://localhost:6006/"


def test_what_a_login_prints_before_is_passed_over() -> None:
    assert read_start("Welcome!\nown t0ken\n") == StartFound(Start.OWN, TOKEN)
    assert read_start("a\nfailed\nwhy\nso\n") == StartFound(Start.FAILED, log="why\nso")
    assert read_start("a\nb\n") == StartFound(Start.FAILED, log="a\nb")
