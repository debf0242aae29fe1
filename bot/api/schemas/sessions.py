"""Sessions: their terms, their agent's report, their disk, and what their owner sends."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, Field, StrictBool

from bot.api.schemas import fields
from bot.api.schemas.base import CommandOut, In, Out, optional
from bot.rules.nodes.machine_logs import LogSource
from bot.services.market.offer_fields import GpuCount, GpuName, Id, MaybePricePerHour
from bot.wire.checkin import StepOutcome
from ledger.kernel.job_state import JobState
from ledger.kernel.ports import PortProtocol
from ledger.kernel.states import SessionState
from ledger.kernel.steps.grace import AtRisk, Cause, GraceChoice
from ledger.kernel.steps.relocation_step import MigrationStep


class PortOut(BaseModel):
    """A port that the job asked for, and where it is reached from outside."""

    port: int = Field(description="Its number on the machine.")
    protocol: PortProtocol = Field(description="http for a web page, tcp for anything else.")
    address: str | None = optional(
        "Where it is reached: host:port, or a URL for a web page. Null: only through an SSH tunnel, or not yet.",
        examples=["https://5xpma5eg46tqjq-8888.proxy.runpod.net"],
    )


class Ssh(BaseModel):
    """How to connect by SSH; only the session's owner sees it.

    The host key is the one that the machine's agent reports, or the one that its server showed first.
    """

    host: str = Field(description="Where the machine is reached.")
    port: int = Field(description="The port.")
    user: str = Field(description="The user to log in as.")
    command: str = Field(description="The command that connects.")
    host_key: str | None = optional(
        "The SSH host key, from a key exchange of this service.", examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA…"]
    )
    fingerprint: str | None = optional("The fingerprint of the key: SHA256:…", examples=["SHA256:…"])
    host_key_confirmed: bool = optional("True where the machine's own agent reports the same key.", False)
    known_hosts: str | None = optional("A line for the file known_hosts.")
    ports: list[PortOut] = optional("The ports that the job asked for.", [])


class LogOut(Out):
    """The end of a log on the session's machine, without control characters and credentials."""

    source: LogSource = Field(description="Which log.")
    lines: list[str] = Field(description="Its last lines.")


class LoginOut(Ssh):
    """How to log in to the machine of a session now. Trust its host key and no other."""

    session_id: fields.SessionId
    request_id: fields.RequestId


class GpuCheckOut(BaseModel):
    """What GPU Shopper found when it logged in to the machine, before the machine became ready."""

    at: datetime = Field(description="When it looked.")
    gpus: list[str] = Field(description="The model of each GPU, as the table of GPUs names it.")
    memory_gb: list[Decimal] = Field(description="The memory of each GPU, as its driver reports it.")
    driver: str = Field(description="The version of the GPU driver.", examples=["570.124.06"])
    cuda: str | None = optional("The newest CUDA that the driver supports.", examples=["12.8"])
    tflops: list[Decimal] = optional("The speed of each GPU in TFLOP/s; empty where it was not measured.", [])


class NodeApiOut(BaseModel):
    """The API of the machine's own agent; only the session's owner sees it. Trust this certificate and no other.

    `other_certificate_sha256` is another one that the machine reported since, at `other_at`. Do not connect to it.
    """

    url: str = Field(description="The address.", examples=["https://203.0.113.7:8443"])
    certificate_sha256: fields.Certificate
    other_certificate_sha256: str | None = optional("Another certificate that was reported since; do not trust it.")
    other_at: datetime | None = optional("When another certificate was reported.")
    token_made_at: datetime | None = optional("When its token was made last; null when nobody has one.")


class NodeTokenOut(CommandOut):
    """The token for the API of a machine, shown this once; it ends with its machine and with the next token."""

    session_id: fields.SessionId
    token: fields.Token
    url: str = Field(description="The address.")
    certificate_sha256: fields.Certificate


class GpuOut(Out):
    """One GPU as the machine's driver shows it."""

    model: str = Field(description="Its name.")
    memory_mb: int = Field(description="Its memory in MiB.")
    temperature_c: int | None = optional("Its temperature in degrees Celsius.")


class StartupStepOut(Out):
    """One step of the machine's start-up."""

    name: str = Field(description="Its name.")
    state: StepOutcome = Field(description="How far it is.")
    seconds: int = Field(description="How long it took.")
    exit_code: int | None = optional("Its exit code once it ended.")


class MachineOut(Out):
    """What the agent sees of its machine. It is the machine's own word."""

    gpus: list[GpuOut] = optional("The GPUs that its driver shows.", [])
    driver: str = optional("The driver's version.", "")
    cuda: str = optional("The newest CUDA that its driver can use.", "")
    disk_free_gb: int | None = optional("Free space of its disk in GB.")
    host_key: str = optional("Its SSH server's key as the machine reports it.", "")
    startup_step: str = optional("The start script's last step, or the first one that failed.", "")
    startup_s: int | None = optional("Seconds from the first to the last step of the start script.")
    exit_code: int | None = optional("The exit code of that step.")
    log_tail: str = optional("The end of its log, after a failure.", "")
    interruption: str = optional("Why the machine is going away.", "")
    cpu_percent: Decimal | None = optional("How busy its CPUs were in the minute before the check-in, in percent.")
    network_kb_s: int | None = optional("Thousands of bytes per second that it sent and received in that minute.")
    logins: int | None = optional("SSH logins that were open.")
    last_login_at: datetime | None = optional("When the newest login began.")
    steps: list[StartupStepOut] = optional("The steps of its start-up.", [])


class QueueOut(Out):
    """How far the job's own queue of runs is, as the job reports it."""

    waiting: int = Field(description="Runs that wait.")
    running: int = Field(description="Runs that run now.")
    done: int = Field(description="Runs that are done.")
    failed: int = Field(description="Runs that failed.")


class AgentOut(Out):
    """What the agent on the machine reported: empty before its first check-in. Percent per GPU."""

    line: str = Field(description="The state of the agent in one sentence.")
    heartbeat_age_s: int | None = optional("Seconds since the agent's last check-in; null when it never came.")
    utilisation: list[Decimal] = optional("How busy each GPU is, in percent.", [])
    step: int | None = optional("The step that the job is at.")
    target_step: int | None = optional("The step at which the job is done.")
    tokens_per_s: Decimal | None = optional("Tokens per second over all GPUs.")
    queue: QueueOut | None = optional("How far the job's own queue is; null where it reports none.")
    idle_since: datetime | None = optional("Since when its GPUs are idle; null while they work.")
    eta: datetime | None = optional("When the job is done at its present speed.")
    cost_to_finish_usd: Decimal | None = optional("What the rest of the job costs at its present speed.")
    startup: str = optional("How far the start-up of the job is, in one line; empty where there is none.", "")
    machine: MachineOut | None = optional("What the agent sees of its machine; null before it reported that.")


class JobOut(Out):
    """How far the job of a session is: its `run` command. A result stays readable after its machine is gone."""

    state: JobState = Field(
        description="queued, running, saving, succeeded, failed, moved, or interrupted (its machine ended first)."
    )
    exit_code: int | None = optional("The exit code of the command once it ended; null where nobody reported it.")
    line: str = Field(description="The same in a few words.", examples=["failed (exit code 3)"])
    attempt: int = optional("The number of its attempt; above 1 where it failed and was started again.", 1)
    attempts: int = optional("How often it is started at most.", 1)
    failed_step: str = optional("The step of its start-up that failed, so that it never started; else empty.", "")
    ended_at: datetime | None = optional("When its result was recorded; null before.")


class Terms(Out):
    """The terms of a session: what was approved with its machine (extensions add to it), and what may end it early."""

    price_cap_usd_h: fields.PriceCap
    total_cap_usd: fields.TotalCap
    replacements_left: int = Field(description="How many replacements are left after a loss.")
    ends_when_unresponsive: bool = Field(description="Whether it ends when its agent stops checking in.")
    ends_when_idle: bool = Field(description="Whether it ends when its GPUs are idle.")


class DiskOut(Out):
    """The retained disk of a session whose machine is stopped: what it costs, and when it is deleted."""

    id: Id
    price_usd_h: Decimal = Field(description="Dollars per hour for the disk alone.")
    since: fields.Since
    until: fields.Until


class GraceOut(Out):
    """A machine that stopped working and is kept, because waiting is cheap and something on it would be lost."""

    code: str = Field(description="Why the machine would end, as a stable code.", examples=["outbid"])
    cause: Cause = Field(description="What caused the trouble.")
    at_risk: AtRisk = Field(description="What would be lost if the machine ended.")
    since: fields.Since
    until: fields.Until
    usd_h: Decimal = Field(description="Dollars per hour while the machine waits.")
    limit_usd: Decimal = Field(description="The most that waiting may cost, in dollars.")
    choice: GraceChoice | None = optional("What somebody chose for the machine: wait, replace or give_up.")
    replaced: bool = optional("True when a replacement runs and only the disk of this machine stays.", False)
    line: str = Field(description="The same in one sentence, with what it has cost.")


class SessionOut(Out):
    """A session. `cost_usd` is what it has cost so far; `deadline` is its approved end.

    A session is `unreconciled` if it ended at a cloud that never reports its charges, or if a launch of it was given up
    unseen: it cost between `low_usd` and `high_usd`.
    """

    id: Id
    request_id: fields.RequestId
    state: SessionState = Field(description="Its state.")
    owner: fields.Owner
    owner_name: str = optional("The owner's name, where the policy knows it.", "")
    shared_with: list[str] = optional("The people with whom it is shared: they log in, and change nothing.", [])
    shared_with_names: list[str] = optional("Their names; a reference where none is known.", [])
    gpu: GpuName
    gpu_count: GpuCount
    nodes: int = optional("How many machines work as one set, each with so many GPUs. Prices are those of all.", 1)
    cloud: str | None = Field(description="The cloud's name.")
    price_usd_h: MaybePricePerHour
    now_usd_h: Decimal | None = optional(
        "Dollars per hour now: of the disk alone while it is stopped. Null before it launches and after its end."
    )
    cost_usd: Decimal = Field(description="What it has cost so far: booked and running.")
    running_usd: Decimal = Field(description="The part of `cost_usd` that still runs and is not booked yet.")
    low_usd: Decimal | None = optional("The least that it can have cost, where the cloud does not report it.")
    high_usd: Decimal | None = optional("The most that it can have cost, where the cloud does not report it.")
    unreconciled: bool = optional(
        "True when the cloud does not report what it charged: then it cost between `low_usd` and `high_usd`.", False
    )
    likely_end_at: datetime | None = optional(
        "When its machine most likely ended, where nobody saw it end; null where the end is known to minutes."
    )
    earliest_end_at: datetime | None = optional("The earliest moment at which it can have ended then.")
    latest_end_at: datetime | None = optional("The latest moment at which it can have ended then.")
    unsettled_usd: Decimal | None = optional(
        "Dollars that the time until then may cost on top. Budgets count them until the bill, or for 30 days."
    )
    hours: Decimal = Field(description="The hours that are approved in all.")
    created_at: fields.CreatedAt
    ready_at: datetime | None = Field(description="When its machine became reachable; null before.")
    ran_s: int | None = optional("The seconds that it ran, without its stops; null while it was never ready.")
    deadline: datetime | None = Field(description="Its approved end.")
    ended_at: fields.EndedAt
    end_code: str = Field(description="Why it ended, as a stable code; empty while it runs.")
    end_reason: str = Field(description="Why it ended, in words.")
    status: str = Field(description="Its state in words.")
    lost_machine: str = optional("After its machine was lost: why, and what follows. Else empty.", "")
    state_text: str = optional("Its state as lists show it: running, running as of 14:02 UTC, or outbid, in grace.", "")
    grace: GraceOut | None = optional("Its machine that stopped working and is kept; null where there is none.")
    ends_early_at: datetime | None = optional(
        "An end before the approved one that was announced; null when there is none."
    )
    ends_early_because: str = optional("Why it ends earlier.", "")
    end_waits_because: str = optional("Why its termination waits for a checkpoint; empty when it does not.", "")
    disk: DiskOut | None = optional("The retained disk while its machine is stopped; null when there is none.")
    agent: AgentOut | None = optional("The last report of the agent on the machine; null while there is no machine.")
    job: JobOut | None = optional("How far its job is; null where the request has no `run`.")
    migration: MigrationOut | None = optional(
        "The newest move of its run, from this session or to it; null where there is none or the session is not yours."
    )
    resumed: str = optional("From which checkpoint its replacement continues, and how much work is lost.", "")
    policy: Terms | None = optional("What was approved with its machine, and what may end it early.")
    node_api: NodeApiOut | None = optional("The API of the machine's own agent, for its owner.")
    paused: fields.Held = ""
    gpu_check: GpuCheckOut | None = optional("What was found on its machine; null where nobody could log in.")
    ssh: Ssh | None = Field(
        description="How to connect; null while there is no machine, and for everybody but the owner."
    )
    other_ssh: list[Ssh] = optional("How to connect to the other machines of its set, in the order of their ranks.", [])


class ExtendIn(In):
    """How much more time, and why."""

    hours: fields.HoursIn
    reason: fields.ReasonText = ""


class MigrateIn(In):
    """Where the run moves."""

    to: str = optional(
        "An offer's id, a cloud, or `cheaper`; empty for whatever fits.", "", max_length=200, examples=["cheaper"]
    )


class MigrationOut(Out):
    """How far the move of a run from one machine to another is."""

    step: MigrationStep = Field(description="The step that was finished last.")
    number: int | None = optional("Its number, from 1 to 8; null where the move failed.")
    line: str = Field(description="The same in a sentence.")
    source_request_id: fields.RequestId
    request_id: fields.RequestId
    saved_from: str = Field(description="The checkpoint that was verified last.", examples=["s3://bucket/run/step-900"])
    saved_step: int | None = optional("The step of that checkpoint, where it is known.")
    note: str = Field(description="What it waits for, or why it failed.")
    context: str = optional("CONTINUATION_CONTEXT.md once the run has moved; empty before.", "")


class DoneIn(In):
    """How the work went, and what happens to the disk."""

    succeeded: StrictBool = optional("Whether the work succeeded: true or false, nothing else.", True)
    storage: Literal["destroy", "preserve"] = Field(
        default="destroy",
        description="destroy deletes the machine and its disk; preserve stops it and retains the disk until the end.",
    )


class StatedRateOut(Out):
    """A predicted rate in tokens per second, with the range that holds four of five runs."""

    expected: Decimal = Field(description="Tokens per second as expected.")
    low: Decimal = Field(description="The low end of the range.")
    high: Decimal = Field(description="The high end of the range.")

    def holds(self, tokens_s: Decimal) -> bool:
        """Whether a measured rate is inside the range."""
        return self.low <= tokens_s <= self.high


class RunOut(Out):
    """What one run measured, beside what was predicted at that time."""

    at: fields.At
    gpu: GpuName
    gpu_count: GpuCount
    words: list[str] = Field(description="The words of the /gpu language.")
    session_id: str = Field(description="The session that it was; empty for a session that this key may not see.")
    request_id: str = optional("The request of that session, empty as it is.", "")
    measured_tokens_s: Decimal = Field(description="Tokens per second as measured.")
    predicted_tokens_s: Decimal = Field(description="Tokens per second as predicted at that time.")
    stated: StatedRateOut | None = optional("What a plan stated just before, corrected by the runs before this one.")
    by_itself: bool = optional("Whether it was recorded when its session ended, from its agent's reports.", False)


class GraceIn(In):
    """What happens to a machine in grace."""

    choice: GraceChoice = Field(description="wait, replace (its disk stays) or give_up.")
