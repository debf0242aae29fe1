"""The journal of a queue: each end once, whatever was torn, repeated or written by others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bot.agent.queue.journal import JOURNAL, EndedCommand, QueueJournal

AT = "2026-03-02T12:00:00+00:00"


def result(number: int, code: int | None = 0) -> EndedCommand:
    return EndedCommand(number, code, 0, AT, AT, 1, "the end")


def test_what_began_and_ended_is_read_again(tmp_path: Path) -> None:
    journal = QueueJournal.read(tmp_path)
    journal.begin(1, 0)
    journal.begin(2, 1)
    journal.end(result(2, 3))
    again = QueueJournal.read(tmp_path)
    assert (again.begun, again.running, again.results) == ({1: [0], 2: [1]}, {1: 0}, {2: result(2, 3)})


def test_a_second_end_of_a_command_changes_nothing(tmp_path: Path) -> None:
    journal = QueueJournal.read(tmp_path)
    journal.begin(1, 0)
    journal.end(result(1))
    journal.end(result(1, 9))
    QueueJournal(tmp_path).end(result(1, 9))  # A process that did not read it.
    assert QueueJournal.read(tmp_path).results == {1: result(1)}


def test_a_torn_line_is_left_out_and_nothing_after_it_is_lost(tmp_path: Path) -> None:
    journal = QueueJournal.read(tmp_path)
    journal.begin(1, 0)
    with (tmp_path / JOURNAL).open("a") as file:
        file.write('{"kind": "ended", "number": 1, "exit_')
    again = QueueJournal.read(tmp_path)
    assert again.results == {}
    again.end(result(1))
    assert QueueJournal.read(tmp_path).results == {1: result(1)}


@pytest.mark.parametrize(
    "line", ["[]", "{}", "no", '{"kind": "ended", "number": 1}', '{"kind": "begun", "number": []}']
)
def test_a_line_that_is_none_is_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / JOURNAL).write_text(f"{line}\n")
    journal = QueueJournal.read(tmp_path)
    assert (journal.begun, journal.results) == ({}, {})


def test_it_only_grows(tmp_path: Path) -> None:
    journal = QueueJournal.read(tmp_path)
    journal.begin(1, 0)
    before = (tmp_path / JOURNAL).read_bytes()
    journal.end(result(1))
    after = (tmp_path / JOURNAL).read_bytes()
    assert after.startswith(before)
    assert [json.loads(line)["kind"] for line in after.splitlines()] == ["begun", "ended"]
