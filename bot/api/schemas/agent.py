"""The check-in of the agent on a rented machine, and its answer."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from bot.api.schemas.base import In, Out, optional
from bot.api.schemas.fields import Certificate
from bot.rules.grammar.attempt_words import MOST_ATTEMPTS
from bot.rules.grammar.queue_words import MOST_COMMANDS
from bot.rules.nodes.checkins import Work
from bot.rules.nodes.machine_report import StepOutcome
from bot.rules.nodes.node_api import MOST_PORT

#: The largest integer that every JSON reader keeps.
MOST = 2**53 - 1
#: Characters that mean nothing to Slack or a terminal.
PLAIN = r"^[A-Za-z0-9 ._()/+:-]*$"
GPU_MAX = 64
HOST_KEY = r"^$|^(ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*$"
Count = Annotated[int, Field(ge=0, le=MOST)]
QueueCount = Annotated[int, Field(ge=0, le=10**9)]
Percent = Annotated[Decimal, Field(ge=0, le=100, decimal_places=6, max_digits=12)]


class CheckpointIn(In):
    """The newest checkpoint that the node knows to be uploaded."""

    step: Count | None = optional("The step that it holds.")
    at: AwareDatetime | None = optional("When.")


class QueueIn(In):
    """How far the job's own queue of runs is."""

    waiting: QueueCount = Field(default=0, description="Runs that wait.")
    running: QueueCount = Field(default=0, description="Runs that run now.")
    done: QueueCount = Field(default=0, description="Runs that are done.")
    failed: QueueCount = Field(default=0, description="Runs that failed.")


class CommandResultIn(In):
    """How one command of the queue ended that the plan of the start-up named."""

    index: Annotated[int, Field(ge=1, le=MOST_COMMANDS)] = Field(description="Counts the results from 1, as they came.")
    number: Annotated[int, Field(ge=1, le=MOST_COMMANDS)] = Field(description="The command's place in the queue.")
    gpu: Annotated[int, Field(ge=0, le=GPU_MAX)] = Field(description="The GPU that ran it, from 0 on.")
    exit_code: Annotated[int, Field(ge=0, le=255)] | None = optional("Its exit code; null where nobody saw its end.")
    attempts: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS)] = Field(default=1, description="How often it was started.")
    started_at: AwareDatetime = Field(description="When its last attempt began.")
    ended_at: AwareDatetime = Field(description="When it ended.")
    log_tail: Annotated[str, Field(max_length=1000)] = optional("The end of its log.", "")


class NodeApiIn(In):
    """The API that this machine serves itself: its port, or its url at the address that its cloud shows."""

    certificate_sha256: Annotated[Certificate, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    port: Annotated[int, Field(ge=1, le=MOST_PORT)] | None = optional("The port.")
    url: Annotated[str, Field(max_length=300)] | None = optional("The address.", examples=["https://203.0.113.7:8443"])


class GpuSeenIn(In):
    """One GPU as the machine's driver shows it."""

    model: Annotated[str, Field(pattern=PLAIN, max_length=GPU_MAX)] = Field(description="Its name.")
    memory_mb: Count = Field(description="Its memory in MiB.")
    temperature_c: Annotated[int, Field(ge=-100, le=1000)] | None = optional("Its temperature in degrees Celsius.")


class StartupStepIn(In):
    """One step of the start-up that the answer to a check-in named."""

    name: Annotated[str, Field(pattern=PLAIN, max_length=40)] = Field(description="Its name.")
    state: StepOutcome = Field(description="How far it is.")
    seconds: Count = Field(default=0, description="How long it took.")
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = optional("Its exit code once it ended.")


class MachineIn(In):
    """What the agent sees of its machine; of a new report everything counts, without one the last report stays."""

    gpus: tuple[GpuSeenIn, ...] = Field(default=(), max_length=64, description="The GPUs that its driver shows.")
    driver: Annotated[str, Field(pattern=PLAIN, max_length=32)] = optional("The driver's version.", "")
    cuda: Annotated[str, Field(pattern=PLAIN, max_length=16)] = optional("The newest CUDA that its driver can use.", "")
    disk_free_gb: Count | None = optional("Free space of its disk in GB.")
    host_key: Annotated[str, Field(pattern=HOST_KEY, max_length=800)] = optional("Its SSH server's key.", "")
    startup_step: Annotated[str, Field(pattern=PLAIN, max_length=40)] = optional(
        "The start script's last step, or the first one that failed.", ""
    )
    startup_s: Count | None = optional("Seconds from the first to the last step of the start script.")
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = optional("The exit code of that step.")
    log_tail: Annotated[str, Field(max_length=2000)] = optional("The end of its log, after a failure.", "")
    interruption: Annotated[str, Field(pattern=PLAIN, max_length=200)] = optional("Why the machine is going away.", "")
    cpu_percent: Percent | None = optional("How busy its CPUs were since the last check-in, in percent.")
    network_kb_s: Count | None = optional("Thousands of bytes per second that it sent and received since then.")
    logins: Annotated[int, Field(ge=0, le=10_000)] | None = optional("SSH logins that are open.")
    last_login_at: AwareDatetime | None = optional("When the newest login began.")
    steps: tuple[StartupStepIn, ...] = Field(default=(), max_length=16, description="The steps of its start-up.")


class SignedEndIn(In):
    """An end as the service signed it in an earlier answer."""

    message: str = Field(max_length=512, description="What was signed, as JSON.")
    signature: str = Field(max_length=128, description="The ed25519 signature of the message, in base64.")


class CheckinIn(In):
    """One check-in. `seq` must be above the one before: milliseconds since 1970 work, also after a restart."""

    v: Literal[1, 2] = Field(default=1, description="The version of this body. Version 2 adds `machine`.")

    seq: int = Field(ge=1, le=MOST, description="The number of the check-in; each is above the one before.")
    utilisation: tuple[Percent, ...] = Field(default=(), max_length=64, description="How busy each GPU is, in percent.")
    job: Work = Field(default=Work.RUNNING, description="How the job goes.")
    job_exit_code: Annotated[int, Field(ge=0, le=255)] | None = optional(
        "The exit code of a job that ended; 128 and the signal's number where a signal ended it."
    )
    job_attempt: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS)] | None = optional(
        "The number of the command's attempt, where it failed before and was started again."
    )
    step: Count | None = optional("The step that the job is at.")
    target_step: Count | None = optional("The step at which the job is done.")
    tokens_per_s: Annotated[Decimal, Field(ge=0, le=10**12, decimal_places=6, max_digits=18)] | None = optional(
        "Tokens per second over all GPUs."
    )
    idle_since: AwareDatetime | None = optional("Since when its GPUs are idle; null while they work.")
    checkpoint: CheckpointIn | None = optional("The newest checkpoint that was saved.")
    queue: QueueIn | None = optional("How many runs of the job's own queue wait, run, are done, and failed.")
    results: tuple[CommandResultIn, ...] = Field(
        default=(), max_length=16, description="Results of the queue's commands, behind those that the answer counts."
    )
    api: NodeApiIn | None = optional("The agent's own API, where it serves one.")
    machine: MachineIn | None = optional("What the agent sees of its machine.")
    wants_startup: bool = Field(default=False, description="Asks for the plan of its start-up.")
    wants_secrets: bool = Field(
        default=False, description="Asks for the secrets of its job. Only an exchanged token gets them."
    )
    signed_end: SignedEndIn | None = optional("The newest signed end that the agent has.")
    nonce: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{32,64}$")] | None = optional(
        "Random, new at each start of the agent: exchanges the boot token. Repeat it until the answer has the token."
    )

    @model_validator(mode="after")
    def _words_of_version_1(self) -> Self:
        """Refuse in version 1 what is newer, as a service of before does."""
        if self.v == 1 and self.queue is not None:
            raise ValueError('queue is part of version 2 only, so send "v": 2.')
        if self.v == 1 and self.job in (Work.QUEUED, Work.SAVING, Work.PAUSED):
            raise ValueError('job has this word in version 2 only, so send "v": 2.')
        return self


class SignedDeadline(Out):
    """The approved end of the session, signed for the agent.

    `message` is JSON: the approved end (`deadline_s`, seconds since 1970 or null), `instance`, and the check-in `n`.

    Where somebody has a token for the machine's own API, `api_token_sha256` is its hash, and the API accepts no other.
    A node accepts the message only with a correct ed25519 `signature` (base64) and an `n` above those before.
    """

    message: str = Field(description="What is signed, as JSON.")
    signature: str = Field(description="The ed25519 signature of the message, in base64.")


class NodeIdentityOut(Out):
    """What the agent serves its API with. Keep the key in memory only."""

    port: int = Field(description="The port to listen on.")
    certificate: str = Field(description="The certificate, in PEM.")
    key: str = Field(description="Its private key, in PEM.", repr=False)


class CheckinOut(Out):
    """The answer: what to do (save, upload, pause, stop), and when this session ends at present."""

    seq: int = Field(description="The number of the check-in; each is above the one before.")
    ends_at: datetime | None = Field(description="When the session ends at present.")
    deadline: SignedDeadline = Field(description="The approved end, signed for the agent.")
    asks: list[str] = Field(description="What the agent is asked to do now: save, upload, pause or stop.")
    next_in_s: int = Field(description="In how many seconds the next check-in is expected.")
    token: str = optional(
        "The token for all check-ins from now on, where this one exchanged the boot token. Keep it in memory only.", ""
    )
    api: NodeIdentityOut | None = optional("With a new token: the key and the certificate for the agent's API.")
    startup: dict[str, Any] | None = optional(
        "The plan of its start-up, where the check-in asked for it; empty where nothing is to be done."
    )
    secrets: dict[str, str] | None = optional(
        "The secrets of its job by name, where the check-in asked for them. Keep them from other users and from logs.",
        repr=False,
    )
    results_taken: int = optional("How many results of the queue's commands are stored.", 0)
    commands: list[tuple[int, str]] | None = optional(
        "The commands that belong to this machine, by their numbers, where several machines share one queue."
    )
    api_problem: str = optional("Why its report about its own API was refused.", "")
