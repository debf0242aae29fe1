"""Describe the API that a machine serves itself: its announcement, its key, and what it says of commands and GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from bot.wire.codec import ValueLimits, spec

MOST_PORT: Final = 65_535


@dataclass(frozen=True)
class NodeApiClaim:
    """The API that this machine serves itself: its port, or its url at the address that its cloud shows."""

    certificate_sha256: Annotated[str, ValueLimits(pattern=r"^[0-9a-fA-F]{64}$")] = spec(
        "The SHA-256 of the certificate of the machine's API, hexadecimal."
    )
    port: Annotated[int, ValueLimits(ge=1, le=MOST_PORT)] | None = spec("The port.", None)
    url: Annotated[str, ValueLimits(max_length=300)] | None = spec(
        "The address.", None, examples=["https://203.0.113.7:8443"]
    )


@dataclass(frozen=True)
class NodeIdentity:
    """What the agent serves its API with. Keep the key in memory only."""

    port: int = spec("The port to listen on.")
    certificate: str = spec("The certificate, in PEM.")
    key: str = spec("Its private key, in PEM.", hidden=True)


@dataclass(frozen=True, kw_only=True)
class CommandBody:
    """What somebody asks of a command."""

    id: str = spec("A name that the caller chooses.")
    command: Literal["start", "pause", "resume", "save", "stop"] = spec("What to do.")
    argv: tuple[str, ...] = spec("The words of a command that starts, the program first.", ())
    env: dict[str, str] | None = spec("Its variables.", None)
    cwd: str | None = spec("A folder inside the workspace.", None)
    job: bool | None = spec("Whether its end is the end of the session's work.", None)


@dataclass(frozen=True)
class CommandReport:
    """How far a command is."""

    id: str = spec("Its name.")
    argv: tuple[str, ...] = spec("Its words.")
    state: str = spec("running, paused, done, failed, or lost.")
    exit_code: int | None = spec("Its exit code, or minus the number of the signal that ended it.")
    started_at: str = spec("When it began.")
    ended_at: str | None = spec("When it ended.")
    problem: str = spec("Why it did not start.")


@dataclass(frozen=True)
class GpuUse:
    """One GPU, and what it does now."""

    model: str = spec("Its name.")
    utilisation: float = spec("In percent.")
    memory_mb: int = spec("Its memory in MiB.")
    memory_used_mb: int = spec("How much of it is used.")
    temperature_c: int = spec("In degrees Celsius.")


@dataclass(frozen=True, kw_only=True)
class MachineUse:
    """What a machine does now."""

    gpus: tuple[GpuUse, ...] = spec("Its GPUs.")
    driver: str = spec("The driver's version.")
    cuda: str = spec("The newest CUDA that its driver can use.")
    gpu_problem: str = spec("Why its GPUs can't be read.")
    load: float = spec("Processes that want a CPU, on average over a minute.")
    processes: int = spec("How many processes there are.")
    disk_free_gb: int = spec("Free space of its disk in GB.")
    disk_gb: int = spec("The size of its disk in GB.")
    job: CommandReport | None = spec("The job that was started on it.")
    progress: dict[str, Any] = spec("How far the job is, in the fields of a check-in.")
    idle_since: str | None = spec("Since when its GPUs are idle.")
    ends_in_s: int | None = spec("Seconds until the approved end.")
