"""The deadline: who may set it, what it counts on, and what a restart keeps of it."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bot.agent.deadline import GRACE_S, TRIES_S, Deadline, Signed, boot_s
from bot.agent.memory import AgentRunsAlreadyError, Memory
from tests.agent.signing import INSTANCE, KEY, OTHER_KEY, PUBLIC, signed

#: From the approved end until the machine begins to end itself.
AFTER_S = GRACE_S - TRIES_S


@dataclass
class Boot:
    """A boot clock in the test's hands."""

    now_s: float = 5000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def boot() -> Boot:
    return Boot()


@pytest.fixture
def deadline(boot: Boot) -> Deadline:
    return Deadline(INSTANCE, PUBLIC, boot)


def test_it_begins_nine_minutes_after_the_approved_end_and_is_over_within_ten(deadline: Deadline, boot: Boot) -> None:
    assert deadline.left_s() is None
    assert deadline.accept(signed(left_s=3600))
    assert (deadline.left_s(), AFTER_S, GRACE_S) == (3600 + 540, 540, 600)
    boot.now_s += 3600
    assert deadline.left_s() == 540


def test_only_a_newer_message_counts_and_it_may_name_an_earlier_end_too(deadline: Deadline) -> None:
    assert deadline.accept(signed(n=5, left_s=3600))
    for number in (5, 4, -1, 5.5, "6", None):
        assert not deadline.accept(signed(n=number, left_s=9000))
    assert deadline.left_s() == 3600 + AFTER_S
    assert deadline.accept(signed(n=6, left_s=7200))
    assert deadline.left_s() == 7200 + AFTER_S
    assert deadline.accept(signed(n=7, left_s=60))
    assert deadline.left_s() == 60 + AFTER_S


def test_nobody_else_can_move_it(deadline: Deadline) -> None:
    good = signed(n=1)
    assert deadline.accept(good)
    longer = good.message.replace("3600", "9999").replace('"n": 1', '"n": 9')
    forged = [
        signed(n=9, key=OTHER_KEY),
        signed(n=9, instance="ins_fedcba9876543210"),
        replace(good, message=longer),
        replace(signed(n=9), signature="?"),
        replace(signed(n=9), signature=""),
        replace(signed(n=9), signature="é" * 88),
        Signed("", "", 0),
        signed(float("nan"), n=9),
        signed(n=9, deadline_s="soon"),
        signed(n=9, deadline_s=1.5),
        signed(n=9, now_s=None),
    ]
    for one in forged:
        assert not deadline.accept(one), one
    assert (deadline.number, deadline.newest, deadline.left_s()) == (1, good, 3600 + AFTER_S)


@pytest.mark.parametrize("message", ["[]", "7", "null", '"x"', "{", "{}"])
def test_what_is_signed_must_be_a_message(deadline: Deadline, message: str) -> None:
    signature = base64.b64encode(KEY.sign(message.encode())).decode()
    assert not deadline.accept(Signed(message, signature, 0))


def test_a_message_without_an_end_keeps_the_one_that_is_known(deadline: Deadline) -> None:
    assert deadline.accept(signed(n=0, left_s=3600))
    assert deadline.accept(signed(n=1, left_s=None))
    assert (deadline.left_s(), deadline.number) == (3600 + AFTER_S, 1)


def test_time_counts_from_when_the_message_came(deadline: Deadline, boot: Boot) -> None:
    """A line that waited in the pipe while this process stood still must not make the end later."""
    boot.now_s = 5300
    assert deadline.accept(signed(5000, left_s=600))
    assert deadline.left_s() == 300 + AFTER_S
    assert deadline.accept(signed(9999, n=2, left_s=600))
    assert deadline.left_s() == 600 + AFTER_S


def test_a_stepped_calendar_clock_moves_nothing(deadline: Deadline, monkeypatch: pytest.MonkeyPatch) -> None:
    assert deadline.accept(signed())
    before = deadline.left_s()
    for wrong_s in (0.0, 4e9, -1.0):
        monkeypatch.setattr(time, "time", lambda wrong_s=wrong_s: wrong_s)
        assert deadline.left_s() == before
        assert deadline.accept(signed(n=deadline.number + 1))
        assert deadline.left_s() == before


def test_the_boot_clock_goes_on() -> None:
    first = boot_s()
    assert 0 < first <= boot_s()


# ── over a restart ─────────────────────────────────────────────────────────────────────────────────────────────────


def kept(folder: Path, boot_id: str, nonce: str = "n" * 43, newest: Signed | None = None) -> None:
    memory = Memory(folder, boot_id)
    memory.lock()
    memory.keep(nonce, newest)
    assert memory.problem == ""
    memory.close()


def test_a_restarted_agent_has_its_nonce_and_the_same_end(tmp_path: Path, deadline: Deadline, boot: Boot) -> None:
    kept(tmp_path / "agent", "boot-1", newest=signed(5000, n=7))
    boot.now_s = 6000
    nonce, newest = Memory(tmp_path / "agent", "boot-1").read()
    assert nonce == "n" * 43
    assert newest is not None
    assert deadline.accept(newest)
    assert (deadline.left_s(), deadline.number) == (2600 + AFTER_S, 7)
    assert (tmp_path / "agent/state.json").stat().st_mode & 0o777 == 0o600


def test_after_a_reboot_the_end_counts_anew_and_errs_on_the_late_side(
    tmp_path: Path, deadline: Deadline, boot: Boot
) -> None:
    kept(tmp_path, "boot-1", newest=signed(5000))
    boot.now_s = 10
    _, newest = Memory(tmp_path, "boot-2").read()
    assert newest is not None
    assert deadline.accept(newest)
    assert deadline.left_s() == 3600 + AFTER_S


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nonce": 7}', '{"nonce": "short"}', '{"message": "x"}'])
def test_a_broken_file_is_no_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    nonce, newest = Memory(tmp_path, "boot-1").read()
    assert (len(nonce), newest) == (43, None)
    assert Memory(tmp_path, "boot-1").read()[0] != nonce


def test_two_agents_do_not_run_on_one_machine(tmp_path: Path) -> None:
    first, second = Memory(tmp_path, "boot-1"), Memory(tmp_path, "boot-1")
    first.lock()
    with pytest.raises(AgentRunsAlreadyError, match="runs already"):
        second.lock()
    first.close()
    second.lock()
    second.close()


def test_an_agent_that_can_keep_nothing_works_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = Memory(tmp_path / "file" / "agent", "boot-1")
    memory.lock()
    memory.keep("n" * 43, None)
    assert "Nothing is kept for a restart" in memory.problem
    assert json.dumps(memory.read()[1]) == "null"
