"""A small trainer, as docs/node.md wants one: it counts steps, saves to a store when asked, and pauses.

    trainer.py STORE

It tells the store each step that it works, so that a test sees who works when. It begins at RESUME_STEP, and saves at
the place in CHECKPOINT.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

STEP_S = 0.1


def send(url: str, body: bytes) -> None:
    """Put a file there."""
    request = urllib.request.Request(url, data=body, method="PUT")  # noqa: S310 # The test's own server.
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 # As above.


class Trainer:
    """One run on one machine."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.saved: dict[str, int | str] = {}
        self.asked: frozenset[str] = frozenset()
        self.place = os.environ["CHECKPOINT"].removeprefix("s3://")
        is_resumed = f"step-{os.environ.get('RESUME_STEP')}" in os.environ.get("RESUME_FROM", "")
        self.step = int(os.environ["RESUME_STEP"]) if is_resumed else 0
        self.name = f"{os.uname().nodename}-{os.getpid()}-{'resumed' if is_resumed else 'first'}"

    def report(self, word: str) -> None:
        """Write how far it is."""
        said = {"job": word, "step": self.step, **({"checkpoint": self.saved} if self.saved else {})}
        new = self.folder / "job/report.new"
        new.write_text(json.dumps(said))
        new.replace(self.folder / "job/report.json")

    def save(self) -> None:
        """Upload a checkpoint of this step."""
        send(f"{self.store}/{self.place}/step-{self.step}/{self.name}.pt", b"w" * 1000)
        self.saved = {"step": self.step, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}

    def work(self) -> None:
        """Train until it is ended."""
        while True:
            try:
                asks = frozenset((self.folder / "asks").read_text().split())
            except OSError:
                asks = frozenset()
            if "upload" in asks and "upload" not in self.asked:
                self.save()
            self.asked = asks
            if "pause" in asks:
                self.report("paused")
            elif "stop" in asks:
                return
            else:
                send(f"{self.store}/works/{self.name}/{self.step}", b"")
                self.step += 1
                if self.step % 50 == 5:
                    self.save()
                self.report("running")
            time.sleep(STEP_S)


if __name__ == "__main__":
    Trainer(sys.argv[1], Path(os.environ["STARTUP_FOLDER"])).work()
