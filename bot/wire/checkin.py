"""Describe a check-in of the agent, and its answer. The published schema of both is made from this file.

A new field needs a default that says nothing, because older services and agents do not send it. Version 2 added
`machine` and everything after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final, Literal

from bot.wire.codec import ValueLimits, spec
from bot.wire.node_api import NodeApiClaim, NodeIdentity
from bot.wire.queue import MOST_ATTEMPTS, MOST_COMMANDS

#: The version that this agent sends, and that this service reads beside version 1.
VERSION: Final = 2
#: Seconds between two check-ins.
INTERVAL_S: Final = 60
#: The largest integer that every JSON reader keeps.
MOST: Final = 2**53 - 1
#: Characters that mean nothing to Slack or a terminal.
PLAIN: Final = r"^[A-Za-z0-9 ._()/+:-]*$"
_HOST_KEY: Final = r"^$|^(ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*$"
_GPUS: Final = 64
#: The most results of one check-in, and the most steps.
MOST_RESULTS: Final = 16
MOST_STEPS: Final = 16
LOG_CHARACTERS: Final = 2000
COMMAND_LOG_CHARACTERS: Final = 1000

Count = Annotated[int, ValueLimits(ge=0, le=MOST)]
QueueCount = Annotated[int, ValueLimits(ge=0, le=10**9)]
Percent = Annotated[Decimal, ValueLimits(ge=0, le=100, decimal_places=6, max_digits=12)]
ShellCode = Annotated[int, ValueLimits(ge=0, le=255)]
ExitCode = Annotated[int, ValueLimits(ge=-255, le=255)]
Attempt = Annotated[int, ValueLimits(ge=1, le=MOST_ATTEMPTS)]
CommandNumber = Annotated[int, ValueLimits(ge=1, le=MOST_COMMANDS)]


class _Word(str, Enum):
    __str__ = str.__str__


class NodeInstruction(_Word):
    """Name what a node is instructed to do."""

    SAVE = "save"
    UPLOAD = "upload"
    PAUSE = "pause"
    STOP = "stop"


class Work(_Word):
    """What a node says about its job."""

    QUEUED = "queued"
    RUNNING = "running"
    SAVING = "saving"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether the job will not continue."""
        return self in (Work.DONE, Work.FAILED)


class StepOutcome(_Word):
    """Say how far one step of a machine's start-up is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Checkpoint:
    """The newest checkpoint that the node knows to be uploaded."""

    step: Count | None = spec("The step that it holds.", None)
    at: datetime | None = spec("When.", None)


@dataclass(frozen=True)
class QueueCounts:
    """How far the job's own queue of runs is."""

    waiting: QueueCount = spec("Runs that wait.", 0)
    running: QueueCount = spec("Runs that run now.", 0)
    done: QueueCount = spec("Runs that are done.", 0)
    failed: QueueCount = spec("Runs that failed.", 0)

    @property
    def total(self) -> int:
        """All of them."""
        return self.waiting + self.running + self.done + self.failed


@dataclass(frozen=True, kw_only=True)
class ReportedResult:
    """How one command of the queue ended that the plan of the start-up named."""

    index: CommandNumber = spec("Counts the results from 1, as they came.")
    number: CommandNumber = spec("The command's place in the queue.")
    gpu: Annotated[int, ValueLimits(ge=0, le=_GPUS)] = spec("The GPU that ran it, from 0 on.")
    exit_code: ShellCode | None = spec("Its exit code; null where nobody saw its end.", None)
    attempts: Attempt = spec("How often it was started.", 1)
    started_at: datetime = spec("When its last attempt began.")
    ended_at: datetime = spec("When it ended.")
    log_tail: Annotated[str, ValueLimits(max_length=COMMAND_LOG_CHARACTERS)] = spec("The end of its log.", "")


@dataclass(frozen=True)
class GpuReport:
    """One GPU as the machine's driver shows it."""

    model: Annotated[str, ValueLimits(pattern=PLAIN, max_length=64)] = spec("Its name.")
    memory_mb: Count = spec("Its memory in MiB.")
    temperature_c: Annotated[int, ValueLimits(ge=-100, le=1000)] | None = spec(
        "Its temperature in degrees Celsius.", None
    )


@dataclass(frozen=True)
class StartupStep:
    """One step of the start-up that the answer to a check-in named."""

    name: Annotated[str, ValueLimits(pattern=PLAIN, max_length=40)] = spec("Its name.")
    state: StepOutcome = spec("How far it is.")
    seconds: Count = spec("How long it took.", 0)
    exit_code: ExitCode | None = spec("Its exit code once it ended.", None)


@dataclass(frozen=True)
class MachineReport:
    """What the agent sees of its machine; of a new report everything counts, without one the last report stays."""

    gpus: Annotated[tuple[GpuReport, ...], ValueLimits(max_length=_GPUS)] = spec("The GPUs that its driver shows.", ())
    driver: Annotated[str, ValueLimits(pattern=PLAIN, max_length=32)] = spec("The driver's version.", "")
    cuda: Annotated[str, ValueLimits(pattern=PLAIN, max_length=16)] = spec(
        "The newest CUDA that its driver can use.", ""
    )
    disk_free_gb: Count | None = spec("Free space of its disk in GB.", None)
    host_key: Annotated[str, ValueLimits(pattern=_HOST_KEY, max_length=800)] = spec("Its SSH server's key.", "")
    startup_step: Annotated[str, ValueLimits(pattern=PLAIN, max_length=40)] = spec(
        "The start script's last step, or the first one that failed.", ""
    )
    startup_s: Count | None = spec("Seconds from the first to the last step of the start script.", None)
    exit_code: ExitCode | None = spec("The exit code of that step.", None)
    log_tail: Annotated[str, ValueLimits(max_length=LOG_CHARACTERS)] = spec("The end of its log, after a failure.", "")
    interruption: Annotated[str, ValueLimits(pattern=PLAIN, max_length=200)] = spec(
        "Why the machine is going away.", ""
    )
    cpu_percent: Percent | None = spec("How busy its CPUs were since the last check-in, in percent.", None)
    network_kb_s: Count | None = spec("Thousands of bytes per second that it sent and received since then.", None)
    logins: Annotated[int, ValueLimits(ge=0, le=10_000)] | None = spec("SSH logins that are open.", None)
    last_login_at: datetime | None = spec("When the newest login began.", None)
    steps: Annotated[tuple[StartupStep, ...], ValueLimits(max_length=MOST_STEPS)] = spec(
        "The steps of its start-up.", ()
    )

    @property
    def failed_step(self) -> StartupStep | None:
        """The first step of the start-up that failed; None while none did."""
        return next((one for one in self.steps if one.state is StepOutcome.FAILED), None)

    def is_done(self, step: str) -> bool:
        """Whether a step of the start-up is done."""
        return any(one.name == step and one.state is StepOutcome.DONE for one in self.steps)


@dataclass(frozen=True)
class SignedMessage:
    """An end as the service signed it in an earlier answer."""

    message: Annotated[str, ValueLimits(max_length=512)] = spec("What was signed, as JSON.")
    signature: Annotated[str, ValueLimits(max_length=128)] = spec("The ed25519 signature of the message, in base64.")


@dataclass(frozen=True, kw_only=True)
class Checkin:
    """One check-in. `seq` must be above the one before: milliseconds since 1970 work, also after a restart."""

    v: Literal[1, 2] = spec("The version of this body. Version 2 adds `machine`.", 1)
    seq: Annotated[int, ValueLimits(ge=1, le=MOST)] = spec("The number of the check-in; each is above the one before.")
    utilisation: Annotated[tuple[Percent, ...], ValueLimits(max_length=_GPUS)] = spec(
        "How busy each GPU is, in percent.", ()
    )
    job: Work = spec("How the job goes.", Work.RUNNING)
    job_exit_code: ShellCode | None = spec(
        "The exit code of a job that ended; 128 and the signal's number where a signal ended it.", None
    )
    job_attempt: Attempt | None = spec(
        "The number of the command's attempt, where it failed before and was started again.", None
    )
    step: Count | None = spec("The step that the job is at.", None)
    target_step: Count | None = spec("The step at which the job is done.", None)
    tokens_per_s: Annotated[Decimal, ValueLimits(ge=0, le=10**12, decimal_places=6, max_digits=18)] | None = spec(
        "Tokens per second over all GPUs.", None
    )
    idle_since: datetime | None = spec("Since when its GPUs are idle; null while they work.", None)
    checkpoint: Checkpoint | None = spec("The newest checkpoint that was saved.", None)
    queue: QueueCounts | None = spec("How many runs of the job's own queue wait, run, are done, and failed.", None)
    results: Annotated[tuple[ReportedResult, ...], ValueLimits(max_length=MOST_RESULTS)] = spec(
        "Results of the queue's commands, behind those that the answer counts.", ()
    )
    api: NodeApiClaim | None = spec("The agent's own API, where it serves one.", None)
    machine: MachineReport | None = spec("What the agent sees of its machine.", None)
    wants_startup: bool = spec("Asks for the plan of its start-up.", False)
    wants_secrets: bool = spec("Asks for the secrets of its job. Only an exchanged token gets them.", False)
    signed_end: SignedMessage | None = spec("The newest signed end that the agent has.", None)
    nonce: Annotated[str, ValueLimits(pattern=r"^[A-Za-z0-9_-]{32,64}$")] | None = spec(
        "Random, new at each start of the agent: exchanges the boot token. Repeat it until the answer has the token.",
        None,
    )

    def __post_init__(self) -> None:
        """Reject fields of version 2 in a body of version 1, as older services do. Raises ValueError."""
        if self.v == 1 and self.queue is not None:
            raise ValueError('queue is part of version 2 only, so send "v": 2.')
        if self.v == 1 and self.job in (Work.QUEUED, Work.SAVING, Work.PAUSED):
            raise ValueError('job has this word in version 2 only, so send "v": 2.')


@dataclass(frozen=True)
class SignedDeadline:
    """The approved end of the session, signed for the agent.

    `message` is JSON: the approved end (`deadline_s`, seconds since 1970 or null), `instance`, and the check-in `n`.

    Where somebody has a token for the machine's own API, `api_token_sha256` is its hash, and the API accepts no other.
    A node accepts the message only with a correct ed25519 `signature` (base64) and an `n` above those before.
    """

    message: str = spec("What is signed, as JSON.")
    signature: str = spec("The ed25519 signature of the message, in base64.")


@dataclass(frozen=True)
class CheckinAnswer:
    """The answer: what to do (save, upload, pause, stop), and when this session ends at present."""

    seq: int = spec("The number of the check-in; each is above the one before.", 0, always=True)
    ends_at: datetime | None = spec("When the session ends at present.", None, always=True)
    deadline: SignedDeadline = spec("The approved end, signed for the agent.", SignedDeadline("", ""), always=True)
    asks: tuple[str, ...] = spec("What the agent is asked to do now: save, upload, pause or stop.", (), always=True)
    next_in_s: int = spec("In how many seconds the next check-in is expected.", INTERVAL_S, always=True)
    token: str = spec(
        "The token for all check-ins from now on, where this one exchanged the boot token. Keep it in memory only.",
        "",
        hidden=True,
    )
    api: NodeIdentity | None = spec("With a new token: the key and the certificate for the agent's API.", None)
    startup: dict[str, Any] | None = spec(
        "The plan of its start-up, where the check-in asked for it; empty where nothing is to be done.", None
    )
    secrets: dict[str, str] | None = spec(
        "The secrets of its job by name, where the check-in asked for them. Keep them from other users and from logs.",
        None,
        hidden=True,
    )
    results_taken: int = spec("How many results of the queue's commands are stored.", 0)
    commands: tuple[tuple[int, str], ...] | None = spec(
        "The commands that belong to this machine, by their numbers, where several machines share one queue.", None
    )
    api_problem: str = spec("Why its report about its own API was refused.", "")
