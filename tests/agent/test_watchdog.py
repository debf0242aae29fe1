"""The watchdog's decisions, on a boot clock in the test's hands; its processes are in test_processes.py."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.agent import reporter_process, settings, watchdog
from bot.agent.deadline import Deadline
from bot.agent.job_files import JobFiles
from bot.agent.memory import Memory
from bot.agent.reporter_process import HANGS_S, ReporterProcess
from bot.agent.self_termination import NO_FACILITY
from bot.agent.settings import NotEnrolledError
from bot.agent.watchdog import RETRY_S, SETTLE_S, Watchdog
from bot.wire.variables import FIRST_MESSAGE, FIRST_SIGNATURE, KEY, TOKEN, URL
from tests.agent.signing import INSTANCE, PUBLIC, first_end, signed
from tests.agent.test_deadline import AFTER_S, Boot

VAST = {"CONTAINER_ID": "77", "CONTAINER_API_KEY": "key"}


class Machine:
    """One machine: its clock, what its agent logs, and what was tried to end it."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = VAST) -> None:
        self.boot, self.logged = Boot(), list[str]()
        self.tried, self.answer = list[tuple[float, int]](), ""
        self.memory = Memory(folder, "boot-1")
        self.environment, self.job = environment, JobFiles(folder / "opt")

    def start(self) -> Watchdog:
        """A new watchdog, with what an earlier one kept."""
        nonce, kept = self.memory.read()
        self.memory.lock()
        deadline = Deadline(INSTANCE, PUBLIC, self.boot)
        made = Watchdog(deadline, self.environment, self.memory, nonce, self.job, self.logged.append, self._end)
        made.start(kept)
        return made

    def _end(self, environment: Mapping[str, str], attempt: int) -> str:
        assert environment == self.environment
        self.tried.append((self.boot.now_s, attempt))
        return self.answer

    def look(self, one: Watchdog) -> None:
        """One look, and the end of the attempt that it may have begun."""
        one.end_if_due()
        if one._trying is not None:
            one._trying.join()

    def heard(self, one: Watchdog, **said: Any) -> bool:
        """A signed message that the reporter passes on now."""
        found = signed(self.boot.now_s, **said)
        return one.receive({"message": found.message, "signature": found.signature, "at_boot_s": found.at_boot_s})


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    built = Machine(tmp_path)
    yield built
    built.memory.close()


def test_it_ends_the_machine_nine_minutes_after_the_approved_end_and_not_before(machine: Machine) -> None:
    one = machine.start()
    assert machine.heard(one, left_s=3600)
    end_s = machine.boot.now_s + 3600
    for second in range(0, 3600 + 600, 5):
        machine.boot.now_s = end_s - 3600 + second
        machine.look(one)
    first_s, attempt = machine.tried[0]
    assert (first_s, attempt) == (end_s + AFTER_S, 1)
    # It goes on while it still runs, four times within the ten minutes.
    assert [at - first_s for at, _ in machine.tried] == [0, RETRY_S, 2 * RETRY_S, 3 * RETRY_S]
    assert machine.logged == [
        "The approved end has passed and this machine still runs, so it ends itself.",
        "The cloud accepted that this machine ends.",
    ]


def test_from_the_approved_end_on_the_job_is_asked_to_save(machine: Machine) -> None:
    one = machine.start()
    asks = machine.job.folder / "asks"
    machine.heard(one, left_s=60)
    machine.boot.now_s += 59
    machine.look(one)
    assert not asks.exists()
    machine.boot.now_s += 1
    machine.look(one)
    assert asks.read_text() == "save\nupload\nstop\n"
    machine.job.write_asks(["save"])  # The service answers again, and asks for less.
    machine.look(one)
    assert asks.read_text() == "save\n"
    assert machine.tried == []


def test_without_any_known_end_it_never_ends_anything(machine: Machine) -> None:
    one = machine.start()
    assert one.pause_s() == watchdog.LOOK_S
    machine.boot.now_s += 1e9
    machine.look(one)
    assert machine.tried == []


def test_an_extension_at_the_last_moment_counts(machine: Machine) -> None:
    one = machine.start()
    assert machine.heard(one, left_s=60)
    machine.boot.now_s += 60 + AFTER_S
    assert machine.heard(one, n=2, left_s=3600)
    machine.look(one)
    assert machine.tried == []
    assert not machine.heard(one, n=1, left_s=1)
    assert one.receive({"message": 7, "signature": "x", "at_boot_s": 1}) is one.receive({}) is False
    machine.boot.now_s += 3600 + AFTER_S
    machine.look(one)
    assert len(machine.tried) == 1


def test_it_wakes_in_time_for_the_end(machine: Machine) -> None:
    one = machine.start()
    machine.heard(one, left_s=0)
    machine.boot.now_s += AFTER_S - 2
    assert one.pause_s() == 2
    machine.boot.now_s += 10
    assert one.pause_s() == 0.5


def test_a_failed_attempt_is_logged_and_repeated(machine: Machine) -> None:
    one = machine.start()
    machine.heard(one, left_s=0)
    machine.boot.now_s += AFTER_S
    machine.answer = "DELETE /x did not get through"
    machine.look(one)
    machine.look(one)
    assert (len(machine.tried), machine.logged[-1]) == (1, machine.answer)
    machine.boot.now_s += RETRY_S
    machine.look(one)
    assert [attempt for _, attempt in machine.tried] == [1, 2]


def test_the_end_of_the_create_counts_without_any_check_in(machine: Machine) -> None:
    first = signed(n=0, left_s=7200)
    machine.environment = {**VAST, **first_end(first)}
    assert machine.start().deadline.left_s() == 7200 + AFTER_S
    assert machine.logged == []


@pytest.mark.parametrize("forged", ["AAAA", "", "?"])
def test_a_forged_first_end_is_ignored_and_logged(machine: Machine, forged: str) -> None:
    machine.environment = {**VAST, **first_end(signed()), FIRST_SIGNATURE: forged}
    assert machine.start().deadline.left_s() is None
    assert "not signed for this machine" in machine.logged[0]


def test_a_broken_first_end_is_ignored_and_logged(machine: Machine) -> None:
    machine.environment = {**VAST, FIRST_MESSAGE: "{not base64}", FIRST_SIGNATURE: "AAAA"}
    assert machine.start().deadline.left_s() is None
    assert "not signed for this machine" in machine.logged[0]


def test_a_restarted_agent_keeps_the_newest_end_and_its_nonce(machine: Machine) -> None:
    first = signed(n=0, left_s=7200)
    machine.environment = {**VAST, **first_end(first)}
    one = machine.start()
    machine.heard(one, n=5, left_s=3600)
    machine.memory.close()
    machine.boot.now_s += 600
    again = machine.start()
    assert (again.nonce, again.deadline.number, again.deadline.left_s()) == (one.nonce, 5, 3000 + AFTER_S)
    assert machine.logged == []


def test_a_machine_started_behind_its_end_asks_first(machine: Machine) -> None:
    """It was stopped over its end, and a later one may have been approved meanwhile."""
    machine.heard(machine.start(), left_s=60)
    machine.memory.close()
    machine.boot.now_s += 7200
    one = machine.start()
    machine.look(one)
    machine.boot.now_s += SETTLE_S - 1
    machine.look(one)
    assert machine.tried == []
    machine.boot.now_s += 1
    machine.look(one)
    assert len(machine.tried) == 1


@pytest.mark.parametrize("environment", [{}, {"CONTAINER_ID": "7"}, {"RUNPOD_POD_ID": "x", "RUNPOD_API_KEY": ""}])
def test_it_says_where_it_cannot_end_its_machine(machine: Machine, environment: Mapping[str, str]) -> None:
    machine.environment = environment
    machine.start()
    assert machine.logged == [NO_FACILITY]


def test_a_full_disk_and_no_more_threads_stop_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine.start()
    one.log = watchdog.log
    machine.heard(one, left_s=0)
    machine.boot.now_s += AFTER_S

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        one.end_if_due()
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
    assert [attempt for _, attempt in machine.tried] == [1]


# ── settings ───────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = {URL: "https://gpu.example.com/agent/v1/checkin", TOKEN: f"gpun_{'0' * 16}_{'x' * 43}", KEY: "A" * 43 + "="}


def test_the_settings_come_from_the_environment() -> None:
    found = settings.read(GOOD)
    assert (found.instance, found.public_key, found.url) == (f"ins_{'0' * 16}", bytes(32), GOOD[URL])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({URL: ""}, "is not set"),
        ({TOKEN: "gpuk_x"}, "is not a boot token"),
        ({KEY: "!"}, "is not an ed25519 public key"),
        ({KEY: "AAAA"}, "is not an ed25519 public key"),
    ],
)
def test_a_machine_without_them_reports_to_nobody(changed: Mapping[str, str], said: str) -> None:
    with pytest.raises(NotEnrolledError, match=said):
        settings.read({**GOOD, **changed})


def test_the_variables_of_the_first_process_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "environ").write_bytes(b"RUNPOD_API_KEY=a=b\0HOME=/root\0\0")
    monkeypatch.setattr(settings, "INIT_ENVIRONMENT", tmp_path / "environ")
    monkeypatch.setenv("HOME", "/home/own")
    found = settings.environment_of_machine()
    assert (found["RUNPOD_API_KEY"], found["HOME"]) == ("a=b", "/home/own")
    monkeypatch.setattr(settings, "INIT_ENVIRONMENT", tmp_path / "none")
    assert settings.environment_of_machine()["HOME"] == "/home/own"


# ── the reporter's process ─────────────────────────────────────────────────────────────────────────────────────────

#: Answers with what it was started with, and lines that say nothing.
ECHO = "import sys; print('x'); print('[1]'); print(sys.stdin.readline(), flush=True); sys.stdin.read()"


@pytest.fixture
def run() -> Iterator[Callable[..., tuple[ReporterProcess, Boot, list[str]]]]:
    made: list[ReporterProcess] = []

    def start(program: str) -> tuple[ReporterProcess, Boot, list[str]]:
        boot, logged = Boot(), list[str]()
        one = ReporterProcess([sys.executable, "-S", "-c", program], lambda: {"nonce": "n"}, boot, logged.append)
        made.append(one)
        one.keep_running()
        return one, boot, logged

    yield start
    for one in made:
        one.stop()


def lines(one: ReporterProcess) -> list[dict[str, Any]]:
    """The next lines of a reporter, or nothing when it ended."""
    while one.pid is not None:
        found = list(one.read(5.0))
        if found:
            return found
    return []


def test_a_reporter_gets_its_first_line_and_its_lines_are_read(run: Callable[..., Any]) -> None:
    one, _, logged = run(ECHO)
    assert lines(one) == [{"nonce": "n"}]
    assert logged == []


def test_a_reporter_that_dies_is_started_again_ever_later(run: Callable[..., Any]) -> None:
    one, boot, logged = run("")
    pauses = []
    for _ in range(3):
        assert lines(one) == []
        began_s = boot.now_s
        while one.pid is None:
            boot.now_s += 0.5
            one.keep_running()
        pauses.append(boot.now_s - began_s)
    assert pauses == [1.0, 2.0, 4.0]
    assert all("The reporter ended" in one for one in logged)


def test_a_reporter_that_hangs_is_ended(run: Callable[..., Any]) -> None:
    one, boot, logged = run(ECHO)
    lines(one)
    boot.now_s += HANGS_S
    one.keep_running()
    assert logged == []
    boot.now_s += 1
    one.keep_running()
    assert logged == [f"The reporter wrote nothing for {HANGS_S:.0f} s (-9); it is started again."]


def test_a_reporter_that_can_not_be_started_is_tried_again(run: Callable[..., Any]) -> None:
    boot, logged = Boot(), list[str]()
    one = ReporterProcess(["/no/such/program"], dict, boot, logged.append)
    one.keep_running()
    one.keep_running()
    assert (len(logged), one.deaths) == (1, 1)
    boot.now_s += reporter_process.FIRST_PAUSE_S
    one.keep_running()
    assert len(logged) == 2
    assert "can't be started" in logged[1]
    one.stop()
