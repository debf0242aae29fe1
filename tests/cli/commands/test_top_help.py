"""`gpu-shopper --help` is printed without typer and rich, and is what they would print."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from bot.cli.command_table import COMMANDS
from bot.cli.top_help import CHOICES, LEAST, lines

PROGRAM = str(Path(sys.executable).with_name("gpu-shopper"))
THEIRS = "import sys; sys.argv[0] = 'gpu-shopper'; from bot.cli.lazy import build; build()()"


def _env(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in CHOICES} | more


def _theirs(width: int, **more: str) -> str:
    """What the libraries print."""
    command = [sys.executable, "-c", THEIRS, "--help"]
    ran = subprocess.run(command, env=_env(COLUMNS=str(width), **more), capture_output=True, check=True)
    return ran.stdout.decode()


def _ours(width: int, *, styled: bool = False) -> str:
    return "".join(f"{line}\n" for line in lines(width, styled=styled))


@pytest.mark.parametrize("width", [LEAST, 137])
def test_it_is_the_libraries_text_to_the_byte(width: int) -> None:
    assert _ours(width) == _theirs(width)
    assert _ours(width, styled=True) == _theirs(width, FORCE_COLOR="1", TERM="xterm")


def test_every_line_fits_the_narrowest_terminal() -> None:
    assert {len(line) for line in lines(LEAST, styled=False)} == {0, LEAST}
    assert all(name in _ours(LEAST) for name, entry in COMMANDS.items() if not entry.hidden)


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_program_imports_no_library_for_it(option: str) -> None:
    timed = [sys.executable, "-X", "importtime", PROGRAM, option]
    ran = subprocess.run(timed, env=_env(COLUMNS="100"), capture_output=True, check=True)
    assert ran.stdout.decode() == _ours(100)
    assert not {"typer", "rich", "bot.cli.lazy"} & {
        line.rpartition("|")[2].strip() for line in ran.stderr.decode().splitlines()
    }


@pytest.mark.parametrize("more", [{"COLUMNS": "60"}, {"NO_COLOR": "1"}, {"PYTHONIOENCODING": "latin-1"}])
def test_where_something_special_is_wanted_the_libraries_print(more: dict[str, str]) -> None:
    ran = subprocess.run([PROGRAM, "--help"], env=_env(**{"COLUMNS": "80", **more}), capture_output=True, check=True)
    assert ran.stdout.decode("latin-1") == _theirs_in(more)


def _theirs_in(more: dict[str, str]) -> str:
    command = [sys.executable, "-c", THEIRS, "--help"]
    env = _env(**{"COLUMNS": "80", **more})
    return subprocess.run(command, env=env, capture_output=True, check=True).stdout.decode("latin-1")


def test_a_terminal_gets_colours() -> None:
    ours, theirs = pty.openpty()
    env = _env(COLUMNS="90", TERM="xterm")
    with subprocess.Popen([PROGRAM, "-h"], env=env, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        said = b""
        while True:
            try:
                more = os.read(ours, 65_536)
            except OSError:  # Linux says so when the other side is closed.
                break
            said += more
        assert running.wait() == 0
    os.close(ours)
    assert said.decode().replace("\r\n", "\n") == _ours(90, styled=True)
