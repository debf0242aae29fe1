"""Report to GPU Shopper: what the GPUs do, and in return what is asked and when the session ends.

The watchdog starts it, writes its nonce to its standard input, and reads what it writes: one line for each attempt,
with the signed message of the answer where one came.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from bot.agent import http_calls, machine, settings
from bot.agent.activity import Activity
from bot.agent.api_process import ApiProcess
from bot.agent.credentials import Credentials, of_this_machine
from bot.agent.deadline import boot_s
from bot.agent.every_gpu import GpuReader
from bot.agent.gpus import NvmlGpus
from bot.agent.job_files import LAST_ASKS, JobFiles
from bot.agent.job_report import job_report
from bot.agent.memory import of_machine
from bot.agent.own_folder import folder_of
from bot.agent.queue.order import FOLDER as QUEUE
from bot.agent.queue.process import SOON_S, QueueProcess
from bot.agent.settings import MachineSettings
from bot.agent.startup.process import Startup
from bot.agent.stop_notice import StopNotice
from bot.wire.checkin import MOST, VERSION, Checkin, CheckinAnswer, SignedMessage
from bot.wire.codec import from_json, to_json

TIMEOUT_S = 20.0
#: RunPod leaves a pod five seconds between the notice and its end.
STOP_S = 3.0
#: After a failure the next try comes after this, then after twice as long, up to a minute.
FIRST_PAUSE_S, LAST_PAUSE_S = 2.0, 60.0
#: The first check-in does not wait for the driver, so the second one follows at once with what the GPUs show.
SECOND_S = 2.0
#: So many check-ins come sooner, each after twice as long as the one before, while the API still starts.
EARLY = 4
#: A GPU below this utilisation, in percent, does nothing worth its price.
BUSY = 5.0
ANSWER_BYTES = 1 << 20
REPLAYED, WRONG_TOKEN, NOT_TAKEN = 409, 401, 422


@dataclass
class Reporter:
    """Send check-ins. `nonce` is random for each machine's agent, and a restarted reporter gets the same.

    With the same nonce the service answers with the same token, so a crash of this process locks nobody out. `seq` is
    the number of the last check-in.
    """

    settings: MachineSettings
    nonce: str
    look: Callable[[], NvmlGpus]
    job: JobFiles
    seq: int = 0
    token: str = ""
    next_in_s: float = 0.0
    timeout_s: float = TIMEOUT_S
    #: Why the last check-in failed; "" when it did not.
    problem: str = ""
    #: Why the machine is going away; "" while it is not.
    interruption: str = ""
    #: The newest signed end of the service: it shows a ledger that was restored from a copy.
    signed_end: SignedMessage | None = None
    #: An older service does not take that end, so it is left out from its refusal on.
    shows_end: bool = True
    #: An older service takes no version 2, so from its refusal on version 1 is sent.
    is_plain: bool = False
    places: machine.Places = field(default_factory=machine.Places)
    api: ApiProcess = field(default_factory=ApiProcess)
    startup: Startup | None = None
    #: Where the secrets of the job go; None where this machine takes none.
    credentials: Credentials | None = None
    activity: Activity = field(default_factory=Activity)
    queue: QueueProcess | None = None
    _has_secrets: bool = False
    _failures: int = 0
    _count: int = 0
    _idle_since: datetime | None = None

    @property
    def idle_since(self) -> str | None:
        """Since when the GPUs do nothing; None while they work."""
        return self._idle_since.isoformat() if self._idle_since else None

    def check_in(self) -> CheckinAnswer | None:
        """Send one check-in and return its answer; None if it was refused or nobody answered (`problem` says why)."""
        if self.queue is not None:
            self.queue.keep_running()  # Also while nobody answers.
        self.seq = min(max(self.seq + 1, time.time_ns() // 1_000_000, 1), MOST)
        body = json.dumps(to_json(self._checkin(self.look() if self._count else NvmlGpus()))).encode()
        headers = {"Authorization": f"Bearer {self.token or self.settings.boot_token}"}
        headers["Content-Type"] = "application/json"
        call = urllib.request.Request(self.settings.url, body, headers, method="POST")
        try:
            with http_calls.opener().open(call, timeout=self.timeout_s) as reply:
                content = json.loads(reply.read(ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            self._learn(error)
            self._note_failure(f"{self.settings.url} answered with {error.code}")
            return None
        except http_calls.FAILURES as error:
            self._note_failure(f"{self.settings.url} can't be reached: {error}")
            return None
        try:
            answer = from_json(CheckinAnswer, content, is_lenient=True)
        except ValueError:
            self._note_failure(f"{self.settings.url} did not answer as GPU Shopper does")
            return None
        self.token = answer.token or self.token
        self.api.take(answer.api)
        if self.credentials is not None and not self._has_secrets:
            self._has_secrets = self.credentials.take(answer.secrets)
        if self.startup is not None:
            self.startup.take(answer.startup)
            self.startup.keep_running()
        if self.queue is not None:
            self.queue.take(answer)
        self._count += 1
        self.job.write_asks(answer.asks)
        self._failures, self.problem = 0, ""
        self.next_in_s = min(max(float(answer.next_in_s), 1.0), 3600.0)
        if self._count == 1 or self._api_starts():
            self.next_in_s = min(self.next_in_s, SECOND_S * 2 ** (self._count - 1))
        if self.queue is not None and self.queue.is_reporting:
            self.next_in_s = min(self.next_in_s, SOON_S)
        return answer

    def _api_starts(self) -> bool:
        """Whether the API has its certificate and does not serve yet: people wait for the check-in that names it."""
        return self._count <= EARLY and self.api.given is not None and not self.api.claim()

    def report_stop(self) -> None:
        """Ask the job to save, and say at once that the machine goes away: its cloud may leave it a few seconds."""
        self.job.write_asks(LAST_ASKS)
        self.interruption, self.timeout_s = "it is being stopped", STOP_S
        self.check_in()
        self.interruption, self.timeout_s = "", TIMEOUT_S
        self.job.write_asks(LAST_ASKS)  # The answer may have asked for less.

    def signed(self, answer: CheckinAnswer) -> dict[str, Any]:
        """Return the signed message of an answer with the time when it came; empty unless it answers this check-in.

        An answer that somebody held back would make the end later than it is.
        """
        message, signature = answer.deadline.message, answer.deadline.signature
        try:
            content = json.loads(message)
            number, end_s = content["n"], content["deadline_s"]
        except (KeyError, TypeError, ValueError):
            return {}
        if number != self.seq:
            return {}
        if end_s is not None:
            self.signed_end = SignedMessage(message, signature)
        return {"message": message, "signature": signature, "at_boot_s": boot_s()}

    def _learn(self, error: urllib.error.HTTPError) -> None:
        if error.code == NOT_TAKEN:
            self.is_plain, self.shows_end = self.signed_end is None or not self.shows_end, False
        if error.code == WRONG_TOKEN:
            self.token = ""  # The next one shows the nonce again.
        if error.code == REPLAYED:
            # The calendar clock was set back: go on after the number that the service has.
            try:
                self.seq = max(self.seq, int(json.loads(error.read(ANSWER_BYTES))["data"]["seq"]))
            except (*http_calls.FAILURES, KeyError, TypeError):
                return

    def _note_failure(self, problem: str) -> None:
        self.problem = problem
        self.next_in_s = min(FIRST_PAUSE_S * 2**self._failures, LAST_PAUSE_S)
        self._failures = min(self._failures + 1, 16)

    def _checkin(self, seen: NvmlGpus) -> Checkin:
        """Return the next check-in. What is wrong is left out, because a check-in that is refused counts as none."""
        now = datetime.now(timezone.utc)
        busy = [gpu.utilisation for gpu in seen.gpus]
        if not busy or max(busy) >= BUSY:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        said: dict[str, Any] = {"seq": self.seq, "utilisation": busy, "idle_since": self.idle_since}
        if not self.is_plain:
            said |= {"v": VERSION, **job_report(self.job.folder), **self.api.claim(), "machine": self._machine(seen)}
            said |= self.queue.report() if self.queue is not None else {}
            said["wants_startup"] = self.startup is not None and not self.startup.is_known
            said["wants_secrets"] = bool(self.token) and self.credentials is not None and not self._has_secrets
        checkin = from_json(Checkin, said if self.token else said | {"nonce": self.nonce}, is_lenient=True)
        shows_end = self.shows_end and not self.is_plain
        return replace(checkin, signed_end=self.signed_end if shows_end else None)

    def _machine(self, seen: NvmlGpus) -> dict[str, Any]:
        found = machine.report(seen, self.places) | self.activity.read() | {"interruption": self.interruption}
        if self.startup is not None:
            found |= self.startup.report()
            if logs := self.startup.logs():
                found["log_tail"] = machine.log_tail(logs)
        return found


class _ShutDown(BaseException):
    """The machine is shutting down."""


def _shut_down(_number: int, _frame: object) -> None:
    raise _ShutDown


def main(_arguments: list[str], /) -> int:
    """Check in for as long as the watchdog listens; when the machine shuts down, once more to say so."""
    begin_with = sys.stdin.readline()
    if not begin_with:
        return 0  # The watchdog ended: this machine has another one, or reports to nobody.
    found, given = settings.read(settings.environment_of_machine()), json.loads(begin_with)
    job = JobFiles(folder_of(found.environment).parent)
    places = machine.Places.of(found.environment)
    folder = folder_of(found.environment)
    startup = Startup(folder, found.environment)
    credentials = of_this_machine(found.environment, of_machine(folder).boot_id)
    activity = Activity(places.activity)
    reporter = Reporter(found, given["nonce"], GpuReader().look, job, given["seq"], places=places, activity=activity)
    reporter.startup, reporter.credentials = startup, credentials
    reporter.queue = QueueProcess(folder.parent / QUEUE)
    own_port = found.environment.get(settings.API_PORT, "")
    reporter.api.own_port = int(own_port) if own_port.isdecimal() else None
    signal.signal(signal.SIGTERM, _shut_down)
    try:
        _check_in_always(reporter)
    except _ShutDown:
        reporter.interruption = "it shuts down"
        reporter.check_in()
    return 0


def _check_in_always(reporter: Reporter) -> None:
    said, notice = "", StopNotice()
    notice.listen()
    while True:
        answer = reporter.check_in()
        if reporter.problem != said and reporter.problem:
            with contextlib.suppress(OSError):  # A full disk is no reason to end.
                print(f"gpu-shopper-agent: {reporter.problem}", file=sys.stderr, flush=True)
        said = reporter.problem
        try:
            signed = reporter.signed(answer) if answer is not None else {}
            print(json.dumps(signed), flush=True)
        except BrokenPipeError:
            # Its watchdog was ended, by a shortage of memory for one, and this process becomes a new one.
            os.execv(sys.executable, [sys.executable, sys.argv[0]])  # noqa: S606 # It starts itself.
        if signed:
            reporter.api.pass_on(signed | {"idle_since": reporter.idle_since})
        if notice.wait(reporter.next_in_s):
            reporter.report_stop()
