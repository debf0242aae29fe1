"""Say what the machine does now: its GPUs, its disk, its job, and when the session ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.agent.api.access import Access
from bot.agent.api.commands import Commands, shown
from bot.agent.deadline import GRACE_S, TRIES_S
from bot.agent.gpus import NvmlGpus
from bot.agent.job_files import JobFiles


@dataclass
class Status:
    """Where the figures come from. `reported` is what the reporter knows: since when the GPUs idle."""

    folder: Path
    look: Callable[[], NvmlGpus]
    access: Access
    commands: Commands
    workspace: Path
    reported: dict[str, Any] = field(default_factory=dict)

    def read(self) -> dict[str, Any]:
        """Return the body of `GET …/status`; takes milliseconds."""
        seen, job = self.look(), self.commands.job()
        left_s = self.access.deadline.left_s()
        disk = shutil.disk_usage(self.workspace if self.workspace.is_dir() else "/")
        return {
            "gpus": [
                {
                    "model": one.name,
                    "utilisation": one.utilisation,
                    "memory_mb": one.memory_mb,
                    "memory_used_mb": one.memory_used_mb,
                    "temperature_c": one.temperature_c,
                }
                for one in seen.gpus
            ],
            "driver": seen.driver,
            "cuda": seen.cuda,
            "gpu_problem": seen.problem,
            "load": round(os.getloadavg()[0], 2),
            "processes": sum(one.name.isdecimal() for one in os.scandir("/proc")),
            "disk_free_gb": disk.free >> 30,
            "disk_gb": disk.total >> 30,
            "job": None if job is None else shown(job),
            "progress": JobFiles(self.folder).report(),
            "idle_since": self.reported.get("idle_since"),
            "ends_in_s": None if left_s is None else int(left_s - GRACE_S + TRIES_S),
        }
