"""Act as a training run on a machine of the sandbox: steps, tokens per second, and checkpoints when they are asked for.

    train-stub [--steps N] [--step-s SECONDS] [--tokens-per-s N] [--fails-at STEP]

It reads `asks` and writes `job/report.json`, as docs/node.md says, and saves checkpoints in `checkpoints`.
While it runs, the machine's GPUs are busy. `pause` holds it for as long as that is asked. `stop` ends it after a
checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path


class TrainingStub:
    """One training run. Its files are those of the agent's folder and of the machine's."""

    def __init__(self, machine: Path, folder: Path, options: argparse.Namespace) -> None:
        self.machine, self.folder, self.options = machine, folder, options
        self.step = 0
        self.saved: dict[str, object] = {}
        self.last_asks: frozenset[str] = frozenset()

    def asks(self) -> frozenset[str]:
        """What is asked now."""
        try:
            return frozenset((self.folder / "asks").read_text().split())
        except OSError:
            return frozenset()

    def report(self, job: str, tokens_per_s: float) -> None:
        """Write how far the run is, in one step."""
        said = {"job": job, "step": self.step, "target_step": self.options.steps, "tokens_per_s": tokens_per_s}
        new = self.folder / "job/report.new"
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(said | ({"checkpoint": self.saved} if self.saved else {})))
        new.replace(self.folder / "job/report.json")

    def save(self) -> None:
        """Save a checkpoint of this step, once."""
        if self.saved.get("step") != self.step:
            path = self.folder / f"checkpoints/step-{self.step}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"step": self.step}))
            self.saved = {"step": self.step, "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
            print(f"saved a checkpoint at step {self.step}", flush=True)

    def use_gpus(self, *, percent: int) -> None:
        """Let the machine's GPUs look busy, or idle."""
        if percent:
            (self.machine / "busy").touch()
        else:
            (self.machine / "busy").unlink(missing_ok=True)
        for file in self.machine.glob("sys/class/drm/card*/device/gpu_busy_percent"):
            file.write_text(f"{percent}\n")

    def work(self) -> int:
        """Train until the last step, a failure or a stop. Returns the exit code."""
        while self.step < self.options.steps:
            asks = self.asks()
            if "stop" in asks or ("save" in asks and "save" not in self.last_asks):
                self.save()
            self.last_asks = asks
            if "stop" in asks:
                self.use_gpus(percent=0)
                self.report("running", 0)
                print("stopped as asked", flush=True)
                return 0
            if "pause" in asks:
                self.use_gpus(percent=0)
                self.report("running", 0)
                time.sleep(self.options.step_s)
                continue
            self.use_gpus(percent=96)
            time.sleep(self.options.step_s)
            self.step += 1
            print(f"step {self.step} of {self.options.steps}, {self.options.tokens_per_s} tokens/s", flush=True)
            if self.step == self.options.fails_at:
                self.use_gpus(percent=0)
                self.report("failed", 0)
                print("loss is not a number", file=sys.stderr)
                return 1
            self.report("running", self.options.tokens_per_s)
        self.use_gpus(percent=0)
        self.save()
        self.report("done", 0)
        return 0


def main(machine: Path, arguments: list[str]) -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser("train-stub", description="Act as a training run.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--tokens-per-s", type=float, default=4200)
    parser.add_argument("--fails-at", type=int, default=0)
    folder = Path(os.environ["GPU_SHOPPER_AGENT_FOLDER"]).parent
    return TrainingStub(machine, folder, parser.parse_args(arguments)).work()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
