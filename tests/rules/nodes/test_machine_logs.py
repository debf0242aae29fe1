"""The command that reads a log runs in a real shell, and what it prints is made safe to show."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bot.rules.nodes.machine_logs import LINE_MAX, NO_LOG, PLACES, LineReader, LogSource, shown, tail_command


def run(folder: Path, source: LogSource, lines: int = 2) -> tuple[int, str]:
    environment = {"PATH": "/usr/bin:/bin", "GPU_SHOPPER_AGENT_FOLDER": f"{folder}/agent"}
    ran = subprocess.run(
        ["/bin/sh", "-c", tail_command(source, lines)], env=environment, capture_output=True, text=True, check=False
    )
    return ran.returncode, ran.stdout


@pytest.mark.parametrize("source", LogSource)
def test_the_end_of_each_log_is_read_and_a_missing_one_is_named(tmp_path: Path, source: LogSource) -> None:
    if source is not LogSource.STARTUP:  # This computer may have a start log of its own.
        assert run(tmp_path, source) == (NO_LOG, "")
    file = Path(PLACES[source][0].replace("$d", str(tmp_path)))
    file.parent.mkdir(exist_ok=True)
    file.write_text("1\n2\n3\n")
    assert run(tmp_path, source) == (0, "2\n3\n")
    file.write_text("x" * 100_000)
    assert len(run(tmp_path, source)[1]) == 60_000
    assert source.label in ("job", "start-up", "agent", "model server")


def test_a_log_that_is_followed_is_printed_as_it_grows(tmp_path: Path) -> None:
    (tmp_path / "start.log").write_text("1\n2\n")
    environment = {"PATH": "/usr/bin:/bin", "GPU_SHOPPER_AGENT_FOLDER": f"{tmp_path}/agent"}
    command = ["/bin/sh", "-c", tail_command(LogSource.STARTUP, 1, follow=True)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == "2\n"
        with (tmp_path / "start.log").open("a") as file:
            file.write("3\n")
        assert tail.stdout.readline() == "3\n"
        tail.kill()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ()),
        ("one\ntwo", ("one", "two")),
        ("one\r\n\r\ntwo\r\n", ("one", "", "two")),
        (" 10%\r 50%\r100%\nend\n", ("100%", "end")),
        (" 10%\r 50%\r\n", (" 50%",)),
        ("\x1b[31mred\x1b[0m \x07bell\x00 \u202eright\tleft", ("red bell right\tleft",)),
        ("token gpun_0123456789abcdefgh end", ("token … end",)),
        ("HF_TOKEN=hf_abcdefghijklmnopqrst", ("HF_TOKEN=…",)),
        (f"ghp_{'a' * 36} sk-{'b' * 40} AKIA{'C' * 16}", ("… … …",)),
        (f"wandb: key={'0a' * 20}", ("wandb: key=…",)),
        (f"commit {'0a' * 20}", (f"commit {'0a' * 20}",)),
    ],
)
def test_what_is_shown(text: str, lines: tuple[str, ...]) -> None:
    assert shown(text) == lines


def test_a_followed_log_is_cut_into_whole_lines() -> None:
    reader = LineReader()
    assert reader.feed("één".encode()[:1]) == ()
    assert reader.feed("één".encode()[1:] + b"\ntwo\nth") == ("één", "two")
    assert reader.feed(b"ree hf_abcdefghijkl") == ()
    assert reader.feed(b"mnopqrst\n") == ("three …",)
    assert reader.feed(b"rest") == ()
    assert reader.rest() == ("rest",)
    assert LineReader().rest() == ()


def test_of_a_progress_bar_only_the_last_state_is_kept() -> None:
    reader = LineReader()
    for percent in range(5000):
        assert reader.feed(b"\r%d%%" % percent) == ()
    assert reader.feed(b"\rdone\n") == ("done",)


def test_a_line_without_an_end_is_shown_at_its_bound() -> None:
    reader = LineReader()
    assert reader.feed(b"x" * LINE_MAX) == ()
    assert reader.feed(b"y") == ("x" * LINE_MAX + "y",)
    assert reader.rest() == ()
