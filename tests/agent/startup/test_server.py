"""The model server of a start-up as a real process: it is asked until it answers, and its end is said with its log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.agent.job_process import CommandFolder
from bot.agent.startup import server
from bot.agent.startup.plan import DONE, LOG, STEPS, StartupProgress, read_plan
from bot.agent.startup.runner import Runner
from bot.agent.startup.server import TOO_LONG, ModelServer
from bot.wire.startup_plan import PlannedServer
from tests.agent.test_job_process import until

#: A server that answers each call with the next of these: a status, or `close`; the last one stays.
PROGRAM = """
import http.server, json, sys
answers = sys.argv[2:]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = answers.pop(0) if len(answers) > 1 else answers[0]
        if status == "exit":
            print("CUDA out of memory", flush=True)
            import os; os._exit(3)
        body = {"choices": [said["model"]]} if status == "200" else {"error": "no chat template"}
        self.send_response(int(status)); self.end_headers(); self.wfile.write(json.dumps(body).encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@dataclass
class Machine:
    """A machine's folder, and what its start-up says."""

    folder: Path
    said: list[str] = field(default_factory=list)
    clock_s: Callable[[], float] = time.monotonic

    def serve(self, *answers: str, limit_s: float = 20, argv: tuple[str, ...] = ()) -> int:
        argv = argv or (sys.executable, "-c", PROGRAM, "{port}", *answers)
        server = ModelServer(
            self.folder,
            "start-1-serve",
            PlannedServer(argv, "org/tiny"),
            {},
            self.said.append,
            self.clock_s,
            self._pause,
        )
        return server.start_and_ask(limit_s)

    def _pause(self, _seconds: float) -> None:
        time.sleep(0.02)

    @property
    def place(self) -> CommandFolder:
        return CommandFolder(self.folder / "serve", "serve.log")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    state = made.place.read()
    if state is not None and made.place.kill(state):
        until(lambda: (now := made.place.read()) is not None and not now.is_running)


def test_it_is_ready_once_it_answered_and_is_started_once(machine: Machine) -> None:
    assert machine.serve("503", "429", "200") == 0
    assert machine.said == ["org/tiny answered a chat completion."]
    first = machine.place.read()
    assert machine.serve("200") == 0
    assert first is not None
    assert (again := machine.place.read()) is not None
    assert again.pid == first.pid


def test_its_end_is_said_with_the_end_of_its_log(machine: Machine) -> None:
    assert machine.serve("exit") == 3
    assert machine.said[0] == "The model server ended with exit code 3."
    assert machine.said[1].splitlines()[-1] == "CUDA out of memory"


def test_a_refusal_is_said_at_once(machine: Machine) -> None:
    assert machine.serve("400") == 1
    assert machine.said[0] == 'The model server refuses a chat completion: 400 {"error": "no chat template"}'


def test_one_that_takes_too_long_keeps_running(machine: Machine) -> None:
    times = iter([0.0, 1799.0, 1801.0])
    machine.clock_s = lambda: next(times)
    assert machine.serve("503", limit_s=1800) == TOO_LONG
    assert machine.said[0] == "It answered no chat completion within 30 minutes. It keeps running."
    state = machine.place.read()
    assert state is not None
    assert state.is_running


def test_a_program_that_is_missing_is_a_failure(machine: Machine) -> None:
    assert machine.serve(argv=("/nowhere/vllm",)) == 127
    assert "exit code 127" in machine.said[0]


def test_a_step_of_the_plan_starts_it_again_after_a_reboot(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ASK_EVERY_S", 0.02)
    serve = {"argv": [sys.executable, "-c", PROGRAM, "{port}", "200"], "model": "org/tiny"}
    step = {"name": "serve", "script": "exit 77", "limit_s": 20, "serve": serve}
    plan = read_plan({"id": "start-1", "environment": {}, "steps": [step]})
    assert plan is not None
    for boot in ("one", "one", "two"):
        progress = StartupProgress.read(machine.folder / STEPS)
        progress.begin(plan, boot)
        Runner(plan, progress, machine.folder).run()
        assert progress.steps["serve"].state == DONE
    text = "--- serve\norg/tiny answered a chat completion.\n"
    assert (machine.folder / LOG).read_text() == text * 2
    assert read_plan({"id": "start-1", "environment": {}, "steps": [{**step, "serve": {"argv": 1}}]}) is None
