"""Keep what the queue of this machine has to run: its commands, GPUs and variables, as its plan said."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bot.agent.job_process import content, write_json
from bot.agent.retry_policy import ONCE, RetryPolicy
from bot.wire.codec import from_json, to_json
from bot.wire.queue import PlannedQueue

BYTES = 1 << 20
#: The folder of the queue, beside the agent's own one, and the file of its order.
FOLDER, ORDER, DEALT = "queue", "order.json", "dealt.json"


@dataclass(frozen=True)
class QueueOrder:
    """A queue with the script that runs each command, its variables, and the names of the secrets that it waits for.

    The script finds its command in QUEUE_COMMAND.
    """

    id: str
    queue: PlannedQueue
    script: str
    environment: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    retry: RetryPolicy = ONCE

    def keep(self, folder: Path) -> None:
        """Write it once for this machine. Raises OSError."""
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if read_order(folder) is not None:
            return
        write_json(
            folder / ORDER,
            {
                **to_json(self.queue),
                "id": self.id,
                "script": self.script,
                "environment": dict(self.environment),
                "secrets": list(self.secrets),
                **self.retry.to_json(),
            },
        )


def keep_dealt(folder: Path, commands: Iterable[tuple[int, str]]) -> None:
    """Add commands that an answer dealt to this machine to those that it has. Raises OSError."""
    new, known = dict(commands), read_dealt(folder)
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
        planned = from_json(PlannedQueue, said)
        if planned.dealt_of:
            planned = replace(planned, commands=tuple(read_dealt(folder).items()))
        environment = {str(name): str(value) for name, value in said["environment"].items()}
        secrets = tuple(map(str, said["secrets"]))
        return QueueOrder(said["id"], planned, said["script"], environment, secrets, RetryPolicy.of(said))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
