"""A person at a terminal: choosing, being asked again, Ctrl-C at any moment; and what is printed at any width."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from bot.cli import screen, telling
from bot.cli.lazy import COMMANDS, build, load
from bot.services.told import TextTable, Told
from tests.cli.test_doors import Terminal, elsewhere, terminal

__all__ = ["elsewhere", "terminal"]

PROGRAM = str(Path(sys.executable).parent / "gpu-shopper")
LIMIT_S = 40.0
#: What prints no answer, or prints it in one form only: why `--json` would say nothing more.
NO_JSON = {
    "demo": "serves until it is ended",
    "serve": "serves until it is ended",
    "sandbox": "serves until it is ended",
    "practice": "serves until it is ended",
    "mcp": "speaks JSON",
    "docs": "writes pages",
    "db upgrade": "says that it is done",
    "db downgrade": "says that it is done",
    "db check": "says that it is so",
    "profiles lint": "says that it is so",
    "ledger export": "writes JSON",
    "ledger manifest": "prints JSON",
    "config set": "says that it is done",
    "config unset": "says that it is done",
    "completion": "prints a script",
    "version": "prints a line",
}


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if not inner:
        yield name, command
    for word, one in (inner or {}).items():
        yield from _commands(one, f"{name} {word}")


def test_every_answer_can_be_had_as_json() -> None:
    lacking = set()
    for name, entry in COMMANDS.items():
        module, _, attribute = (entry.at or f"{name}:app").partition(":")
        for full, command in _commands(get_command(getattr(load(module), attribute)), name):
            if not any("--json" in option.opts for option in command.params):
                lacking.add(full)
    assert lacking == set(NO_JSON)


@pytest.mark.parametrize("arguments", [("doctor", "--offline"), ("profiles", "show", "vast")])
def test_what_looks_at_this_machine_prints_one_document(elsewhere: Path, arguments: tuple[str, ...]) -> None:
    assert json.loads(CliRunner().invoke(build(), [*arguments, "--json"]).stdout)


class Person:
    """Somebody at a terminal of their own: reads until something is shown, and types."""

    def __init__(self, *arguments: str, env: Mapping[str, str]) -> None:
        self.fd, theirs = pty.openpty()
        self.program = subprocess.Popen(
            [PROGRAM, *arguments],
            env={**os.environ, **env, "TERM": "xterm", "COLUMNS": "100"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def sees(self, text: str) -> None:
        """Wait until it is shown."""
        end = time.monotonic() + LIMIT_S
        while text not in self.seen and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.2)[0] and not self._read():
                break
        assert text in self.seen, self.seen[-2000:]

    def types(self, text: str) -> None:
        """Press keys; what was shown before is not looked at again."""
        self.seen = ""
        os.write(self.fd, text.encode())

    def interrupts(self) -> None:
        """Press Ctrl-C."""
        self.program.send_signal(signal.SIGINT)

    def ends(self) -> int:
        """Wait for its end; its exit code. What stays is killed."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.2)[0] and not self._read():
                break
        else:
            self.program.kill()
        os.close(self.fd)
        return self.program.wait(LIMIT_S)

    def _read(self) -> bool:
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


async def test_a_person_chooses_is_asked_again_and_may_leave_at_any_moment(terminal: Terminal) -> None:
    t = terminal
    env = {"GPU_SHOPPER_URL": t.url, "GPU_SHOPPER_API_KEY": t.key}

    def leaves() -> tuple[int, str]:
        person = Person("provision", "--gpu", "4090", "--hours", "2", env=env)
        person.sees("Which one? A number, or Enter")
        person.types("77\r")
        person.sees("Say one of 1, ")
        person.interrupts()
        return person.ends(), person.seen

    code, said = await asyncio.to_thread(leaves)
    assert (code, "Traceback" in said) == (130, False)
    assert (await t.w.books()).requests == ()

    def stays() -> int:
        person = Person("provision", "--gpu", "4090", "--hours", "2", "--wait", env=env)
        person.sees("Which one?")
        person.types("2\r")
        person.sees("request pending, waits for")
        person.interrupts()
        return person.ends()

    waiting = asyncio.create_task(asyncio.to_thread(stays))
    request_id = await t.newest(1)
    assert await waiting == 130
    # It is asked all the same: only the waiting ended.
    options = (await t.w.view(request_id)).options
    assert len({option.offer_id for option in options}) == 1


def test_ctrl_c_between_two_questions_is_not_lost() -> None:
    async def two_questions() -> None:
        # The loop's handler notes it and this code meets no wait before it asks.
        signal.raise_signal(signal.SIGINT)
        screen.ask("Which one?")

    # A loop takes the key over from Python's own handler only, as in a program that has just begun.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(typer.Exit) as left:
            asyncio.run(two_questions())
    finally:
        signal.signal(signal.SIGINT, before)
    assert left.value.exit_code == 130


def _at(width: int, told: Told, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    out = io.StringIO()
    monkeypatch.setattr(telling, "console", lambda: Console(file=out, width=width, soft_wrap=True))
    telling.tell(told)
    return out.getvalue().splitlines()


def test_what_is_typed_again_is_never_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    offer, why = "runpod:community/RTX4090x1-very-long", "Lowest expected total with its risk: $0.40 expected"
    table = TextTable(head=("#", "offer", "why"), rows=(("1", offer, why),))
    wide = _at(200, Told(tables=(table,)), monkeypatch)
    assert wide[1].split("  ") == [" 1", offer, f"{why} "]
    prose_gives_way = _at(70, Told(tables=(table,)), monkeypatch)
    assert offer in prose_gives_way[1]
    narrow = _at(30, Told(tables=(table,)), monkeypatch)
    assert "…" not in "".join(narrow)
    assert sorted("".join("".join(narrow[1:]).split())) == sorted("".join(f"1{offer}{why}".split()))
