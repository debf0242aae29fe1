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
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from bot.cli.command_table import COMMANDS
from bot.cli.lazy import build, imported
from bot.cli.terminal import screen, terminal_tables
from bot.rules.values.text_table import TextReport, TextTable
from providers import http
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
    "ssh": "becomes that program",
    "scp": "becomes that program",
    "rsync": "becomes that program",
    "open": "prints an address, or becomes ssh",
    "docs": "writes pages",
    "db upgrade": "says that it is done",
    "db downgrade": "says that it is done",
    "db check": "says that it is so",
    "profiles lint": "says that it is so",
    "ledger export": "writes JSON",
    "ledger manifest": "prints JSON",
    "runs export": "writes CSV",
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
    for name in COMMANDS:
        for full, command in _commands(imported(name), name):
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
        again = time.monotonic() + LIMIT_S / 4
        while time.monotonic() < end:
            if time.monotonic() > again:
                # A signal that comes as readline begins to wait is only seen with the next key; people press again.
                self.interrupts()
                again = end
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


@pytest.mark.slow
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
        person.sees("request waiting for approval from")
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
        screen.prompt("Which one?")

    # A loop takes the key over from Python's own handler only, as in a program that has just begun.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(typer.Exit) as left:
            asyncio.run(two_questions())
    finally:
        signal.signal(signal.SIGINT, before)
    assert left.value.exit_code == 130


def _at(width: int, told: TextReport, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    out = io.StringIO()
    for module in (terminal_tables, screen):
        monkeypatch.setattr(module, "console", lambda **_: Console(file=out, width=width, soft_wrap=True))
    terminal_tables.print_report(told)
    return out.getvalue().splitlines()


OFFER, WHY = "runpod:community/RTX4090x1-very-long", "Cheapest: about $0.40"
NODE = "tensordock:896d4858-13e4-4d45-9ec5-e8de5c76e4f2/h100-sxm5-80gbx8"
HEAD = ("#", "offer", "GPU", "region", "per hour", "range", "why")
MARKET = TextTable(
    head=HEAD,
    rows=(
        ("1", OFFER, "1x RTX4090", "California, US", "$0.350/h", "$0.35–$0.50", WHY),
        ("12", NODE, "8x H100-SXM", "any", "$19.21/h", "-", f"{WHY} 世界 {WHY}"),
    ),
)


@pytest.mark.parametrize("words", [("provision", "--dry-run"), ("plan",), ("inventory",)])
async def test_where_no_cloud_answers_a_question_ends_with_69(
    words: tuple[str, ...], terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BACKOFF_S", 0.01)
    code, out, _ = await terminal.run(*words, "1x4090 2h clouds=vast,runpod")
    assert (code, "2 of 2 clouds did not answer: vast and runpod. Try again." in out) == (screen.UNAVAILABLE, True)
    assert "No offer fits" not in out


def test_what_fits_is_one_line_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TextTable(head=("#", "offer", "why"), rows=(("1", OFFER, WHY),))
    wide = _at(200, TextReport(tables=(table,)), monkeypatch)
    assert [line.split() for line in wide] == [["#", "offer", "why"], ["1", OFFER, *WHY.split()]]
    assert wide[1].index(WHY) == wide[0].index("why")


@pytest.mark.parametrize("width", [40, 72, 80, 100, 120, 200, 10_000])
def test_what_is_typed_again_is_whole_at_any_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _at(width, TextReport(tables=(MARKET,)), monkeypatch)
    for word in (OFFER, NODE, "1x RTX4090", "8x H100-SXM", "$0.350/h", "$19.21/h", "California, US", "$0.35–$0.50"):
        assert any(word in line for line in shown), (word, shown)
    assert " ".join("".join(shown).split()).count("世界") == 1
    assert all(cell_len(line) <= width for line in shown if NODE not in line or len(NODE) + 4 <= width), shown
    assert "…" not in "".join(shown)


def test_prose_gives_way_before_what_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TextTable(head=HEAD, rows=MARKET.rows[:1])
    shown = _at(100, TextReport(tables=(table,)), monkeypatch)
    assert shown[0].split() == ["#", "offer", "GPU", "region", "per", "hour", "range"]
    assert shown[2:] == [f"    {WHY}"]
    narrow = _at(64, TextReport(tables=(table,)), monkeypatch)
    assert narrow[0].split() == ["#", "offer", "GPU", "per", "hour"]
    assert narrow[2:] == ["    region: California, US", "    range: $0.35–$0.50", f"    {WHY}"]


def test_prose_is_wrapped_between_words_and_what_is_copied_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    command = "`gpu-shopper approve 4k7m2p --option 1 --quote-version 3`"
    connect = f"For known_hosts: [198.51.100.7]:41022 ssh-ed25519 {'A' * 68}"
    shown = _at(
        60, TextReport(sentences=(f"Say which offer you read, such as {command}, or why.", connect)), monkeypatch
    )
    assert shown == ["Say which offer you read, such as", f"{command},", "or why.", connect]
