"""Read the plan of a machine's start-up, and keep how far each of its steps is."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.agent.job_process import content, write_json
from bot.wire.checkin import StepOutcome
from bot.wire.codec import from_json
from bot.wire.startup_plan import StartupPlan

BYTES = 1 << 18
#: The plan and its progress as they are kept, and what the steps print.
PLAN, STEPS, LOG = "startup_plan.json", "startup_steps.json", "startup.log"
WAITING, RUNNING, DONE, FAILED, SKIPPED = (one.value for one in StepOutcome)


def read_plan(said: object) -> StartupPlan | None:
    """Read a plan as it came; None for what is none."""
    try:
        return from_json(StartupPlan, said)
    except ValueError:
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

    def begin(self, plan: StartupPlan, boot_id: str) -> None:
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
