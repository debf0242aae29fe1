"""Say what the machine does now: its GPUs, its disk, its job, and when the session ends."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.agent.api.access import Access
from bot.agent.api.commands import Commands, shown
from bot.agent.api.problems import ApiRefusal
from bot.agent.deadline import GRACE_S, TRIES_S
from bot.agent.gpus import NvmlGpus
from bot.agent.job_report import job_report
from bot.wire.codec import to_json
from bot.wire.node_api import GpuUse, MachineUse

#: What a driver may take to answer.
DRIVER_S = 5.0


@dataclass
class ApiStatus:
    """Where the figures come from. `reported` is what the reporter knows: since when the GPUs idle."""

    folder: Path
    look: Callable[[], NvmlGpus]
    access: Access
    commands: Commands
    workspace: Path
    reported: dict[str, Any] = field(default_factory=dict)
    _one: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1), repr=False)
    _reading: asyncio.Future[dict[str, Any]] | None = None

    async def answer(self) -> dict[str, Any]:
        """Read it in a thread of its own, because a driver that hangs must not hold up files and commands.

        Raises ApiRefusal (503) while it hangs.
        """
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().run_in_executor(self._one, self.read)
        done, _ = await asyncio.wait({self._reading}, timeout=DRIVER_S)
        if not done:
            raise ApiRefusal(503, f"The GPU driver did not answer within {DRIVER_S:.0f} s.", {"Retry-After": "30"})
        return self._reading.result()

    def read(self) -> dict[str, Any]:
        """Return the body of `GET …/status`; takes milliseconds."""
        seen, job = self.look(), self.commands.job()
        left_s = self.access.deadline.left_s()
        disk = shutil.disk_usage(self.workspace if self.workspace.is_dir() else "/")
        use = MachineUse(
            gpus=tuple(
                GpuUse(one.name, one.utilisation, one.memory_mb, one.memory_used_mb, one.temperature_c)
                for one in seen.gpus
            ),
            driver=seen.driver,
            cuda=seen.cuda,
            gpu_problem=seen.problem,
            load=round(os.getloadavg()[0], 2),
            processes=sum(one.name.isdecimal() for one in os.scandir("/proc")),
            disk_free_gb=disk.free >> 30,
            disk_gb=disk.total >> 30,
            job=None if job is None else shown(job),
            progress=job_report(self.folder),
            idle_since=self.reported.get("idle_since"),
            ends_in_s=None if left_s is None else int(left_s - GRACE_S + TRIES_S),
        )
        answer: dict[str, Any] = to_json(use)
        return answer
