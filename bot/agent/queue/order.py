"""Keep what the queue of this machine has to run: its commands, GPUs and variables, as its plan said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bot.agent.job_process import content, write_json
from bot.agent.retry_policy import ONCE, RetryPolicy

BYTES = 1 << 20
#: The folder of the queue, beside the agent's own one, and the file of its order.
FOLDER, ORDER, DEALT = "queue", "order.json", "dealt.json"


@dataclass(frozen=True)
class QueuedCommands:
    """The commands of a queue by their numbers, how many GPUs run them, and what other machines have done before."""

    commands: Mapping[int, str]
    gpus: int
    done: int = 0
    failed: int = 0
    #: How many commands the whole queue has, where answers to check-ins deal them to several machines; else 0.
    dealt_of: int = 0

    @classmethod
    def of(cls, said: Any) -> QueuedCommands | None:
        """Read it as a plan has it; None where there is none. Raises KeyError, TypeError or ValueError."""
        if said is None:
            return None
        commands = {int(number): str(text) for number, text in said["commands"]}
        gpus, done, failed = max(int(said["gpus"]), 1), int(said.get("done", 0)), int(said.get("failed", 0))
        return cls(commands, gpus, done, failed, int(said.get("dealt_of", 0)))


@dataclass(frozen=True)
class QueueOrder:
    """A queue with the script that runs each command, its variables, and the names of the secrets that it waits for.

    The script finds its command in QUEUE_COMMAND.
    """

    id: str
    queue: QueuedCommands
    script: str
    environment: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    retry: RetryPolicy = ONCE

    def keep(self, folder: Path) -> None:
        """Write it once for this machine. Raises OSError."""
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if read_order(folder) is not None:
            return
        planned = self.queue
        write_json(
            folder / ORDER,
            {
                "id": self.id,
                "commands": list(planned.commands.items()),
                "gpus": planned.gpus,
                "done": planned.done,
                "failed": planned.failed,
                "dealt_of": planned.dealt_of,
                "script": self.script,
                "environment": dict(self.environment),
                "secrets": list(self.secrets),
                **self.retry.to_json(),
            },
        )


def keep_dealt(folder: Path, commands: Any) -> None:
    """Add commands that an answer dealt to this machine to those that it has. Raises OSError."""
    try:
        new = {int(number): str(text) for number, text in commands}
    except (TypeError, ValueError):
        return
    known = read_dealt(folder)
    if not new.keys() <= known.keys():
        write_json(folder / DEALT, {"commands": list((new | known).items())})


def read_dealt(folder: Path) -> dict[int, str]:
    """Return the commands that were dealt to this machine by their numbers, in their order."""
    try:
        said = json.loads(content(folder / DEALT, BYTES))["commands"]
        return dict(sorted((int(number), str(text)) for number, text in said))
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return {}


def read_order(folder: Path) -> QueueOrder | None:
    """Return the order of this machine; None where it has no queue."""
    try:
        said = json.loads(content(folder / ORDER, BYTES))
        planned = QueuedCommands.of(said)
        if planned is None:
            return None
        if planned.dealt_of:
            planned = replace(planned, commands=read_dealt(folder))
        environment = {str(name): str(value) for name, value in said["environment"].items()}
        secrets = tuple(map(str, said["secrets"]))
        return QueueOrder(said["id"], planned, said["script"], environment, secrets, RetryPolicy.of(said))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
