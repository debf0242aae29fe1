"""Describe the plan of a machine's start-up, which the answer to a check-in hands to the agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bot.wire.codec import spec
from bot.wire.queue import PlannedQueue

#: A script ends with this where it has nothing to do on this machine; it is no failure.
LEFT_OUT: Final = 77


@dataclass(frozen=True)
class PlannedServer:
    """A server with OpenAI's HTTP API.

    The agent fills in {port}, and {gpus}: the largest power of two of GPUs that the machine has.
    """

    argv: tuple[str, ...] = spec("Its words without a shell.")
    model: str = spec("The model that it serves.")


@dataclass(frozen=True)
class PlannedStep:
    """One step: a script for `sh`, with `job` the command that is started as the session's job, or a model server."""

    name: str = spec("Its name.")
    script: str = spec("What `sh` runs.")
    limit_s: float = spec("The most seconds that it may take.")
    job: bool = spec("Whether its script is started as the session's job.", False, always=True)
    needs: tuple[str, ...] = spec("Steps without which this one is left out.", (), always=True)
    secrets: tuple[str, ...] = spec("Names of secrets that it waits for.", (), always=True)
    attempts: int = spec("How often the job's command is started at most.", 1)
    retry_codes: tuple[int, ...] = spec("After which exit codes; empty: after each but 0.", ())
    queue: PlannedQueue | None = spec("The commands that the script runs, one on each GPU.", None)
    serve: PlannedServer | None = spec("The model server that is started instead of the script.", None)


@dataclass(frozen=True)
class StartupPlan:
    """The steps of one machine's start-up, and the variables that they start with. None of them is a secret."""

    id: str = spec("Names the plan: an agent runs each one once.")
    environment: dict[str, str] = spec("The variables.")
    steps: tuple[PlannedStep, ...] = spec("The steps, in their order.")
