"""Read the plan of a machine's start-up, and keep how far each of its steps is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.agent.job_process import content, write_json
from bot.agent.queue.order import QueuedCommands
from bot.agent.retry_policy import ONCE, RetryPolicy

BYTES = 1 << 18
#: The plan and its progress as they are kept, and what the steps print.
PLAN, STEPS, LOG = "startup_plan.json", "startup_steps.json", "startup.log"
WAITING, RUNNING, DONE, FAILED, SKIPPED = "waiting", "running", "done", "failed", "skipped"


@dataclass(frozen=True)
class Server:
    """A model server to start: its words without a shell, in which {port} and {gpus} are filled in, and its model."""

    argv: tuple[str, ...]
    model: str

    @classmethod
    def of(cls, said: Any) -> Server | None:
        """Read it as it came; None where there is none. Raises KeyError or TypeError for what is none."""
        return None if said is None else cls(tuple(map(str, said["argv"])), str(said["model"]))


@dataclass(frozen=True)
class Step:
    """One step: a script for `sh`, with `job` the command that is started as the session's job, or a model server."""

    name: str
    script: str
    limit_s: float
    job: bool = False
    #: Steps that must be done before this one; where one is not, this one is left out.
    needs: tuple[str, ...] = ()
    #: Secrets of the job without which it does not start; it waits until they came.
    secrets: tuple[str, ...] = ()
    serve: Server | None = None
    #: How often a job's command is started at most, and after which exit codes.
    retry: RetryPolicy = ONCE
    #: The commands that the job's script runs, one on each GPU; None: the script is the command.
    queue: QueuedCommands | None = None


@dataclass(frozen=True)
class Plan:
    """The steps of one machine, in order, and the variables that they start with."""

    id: str
    environment: Mapping[str, str]
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, said: object) -> Plan | None:
        """Read it as it came; None for what is no plan."""
        try:
            steps = tuple(
                Step(
                    str(one["name"]),
                    str(one["script"]),
                    float(one["limit_s"]),
                    one.get("job") is True,
                    tuple(map(str, one.get("needs", ()))),
                    tuple(map(str, one.get("secrets", ()))),
                    Server.of(one.get("serve")),
                    RetryPolicy.of(one),
                    QueuedCommands.of(one.get("queue")),
                )
                for one in said["steps"]  # type: ignore[index] # Checked by the except.
            )
            given = said["environment"].items()  # type: ignore[index] # The same.
            return cls(str(said["id"]), {str(key): str(value) for key, value in given}, steps)  # type: ignore[index]
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


@dataclass(frozen=True)
class StepState:
    """How far one step is: when it began (`time.monotonic`), how long it took, and its exit code once it ended."""

    name: str
    state: str = WAITING
    seconds: int = 0
    exit_code: int | None = None
    began_s: float = 0.0

    def report(self, now_s: float) -> dict[str, Any]:
        """Return it as a check-in says it, with the seconds until now while it runs."""
        so_far = max(int(now_s - self.began_s), 0) if self.state == RUNNING else self.seconds
        return {"name": self.name, "state": self.state, "seconds": so_far, "exit_code": self.exit_code}


@dataclass
class StartupProgress:
    """How far the steps of one plan are, kept in a file that every user of the machine can read."""

    path: Path
    plan_id: str = ""
    boot_id: str = ""
    steps: dict[str, StepState] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> StartupProgress:
        """Read it; where nothing was begun it is empty."""
        try:
            said = json.loads(content(path, BYTES))
            steps = [StepState(**one) for one in said["steps"]]
            return cls(path, said["plan_id"], said["boot_id"], {one.name: one for one in steps})
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            return cls(path)

    def begin(self, plan: Plan, boot_id: str) -> None:
        """Take over what was done of the same plan. After a reboot, failed steps and a model server run again."""
        again = self.boot_id != boot_id
        before = self.steps if self.plan_id == plan.id else {}
        self.plan_id, self.boot_id, self.steps = plan.id, boot_id, {}
        for step in plan.steps:
            known = before.get(step.name, StepState(step.name))
            over = known.state in (FAILED, SKIPPED, DONE) and not again
            over = over or (known.state == DONE and step.serve is None)
            self.steps[step.name] = known if over else StepState(step.name)
        self.write()

    def note(self, name: str, **changes: Any) -> None:
        """Change one step and write the file."""
        self.steps[name] = replace(self.steps[name], **changes)
        self.write()

    def write(self) -> None:
        """Write the file in one step."""
        steps = [asdict(one) for one in self.steps.values()]
        write_json(self.path, {"plan_id": self.plan_id, "boot_id": self.boot_id, "steps": steps})
