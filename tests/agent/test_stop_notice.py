"""A machine that is being stopped says so at once and asks its job to save; then the agent continues."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.agent.job_files import LAST_ASKS
from bot.agent.stop_notice import StopNotice
from tests.agent.service import Service, checkin_answer
from tests.agent.test_processes import Start, here, start

__all__ = ["here", "start"]  # Fixtures.


@pytest.fixture
def notice() -> Iterator[StopNotice]:
    before = signal.getsignal(signal.SIGUSR1)
    made = StopNotice()
    made.listen()
    yield made
    signal.signal(signal.SIGUSR1, before)


def test_a_notice_ends_the_wait(notice: StopNotice) -> None:
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    began_s = time.monotonic()
    assert notice.wait(30)
    assert time.monotonic() - began_s < 10
    timer.join()
    assert not notice.wait(0)


def test_a_notice_during_other_work_counts_at_the_next_wait(notice: StopNotice) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert notice.wait(30)
    assert not notice.wait(0)


@pytest.mark.slow
def test_an_agent_passes_the_notice_on_and_goes_on(start: Start, here: Service, tmp_path: Path) -> None:
    here.answer = lambda call: (200, checkin_answer(call.body.get("seq", 0), next_in_s=60))
    agent = start(here.environment())
    here.wait(lambda calls: len(calls) >= 2)  # The second one comes at once; then it waits for a minute.
    asks = tmp_path / "asks"
    assert asks.read_text() == ""
    assert int((tmp_path / "run/lock").read_text()) == agent.process.pid
    os.kill(agent.process.pid, signal.SIGUSR1)
    calls = here.wait(lambda calls: calls[-1].body["machine"].get("interruption") == "it is being stopped")
    end_s = time.monotonic() + 20
    while asks.read_text().split() != list(LAST_ASKS):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    (reporter,) = agent.children()
    os.kill(agent.process.pid, signal.SIGUSR1)
    here.wait(lambda later: len(later) > len(calls))
    assert agent.process.poll() is None
    assert agent.children() == [reporter]
